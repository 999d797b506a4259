//! Whatever the boards and the requirement are: no container gets a board that violates query, validity or limit, and
//! only where too few boards are left it gets none.

use super::{Occupation as _, choose};
use fpga_core::board_kind::BoardKind;
use fpga_core::device::{Health, ReconfiguredPart};
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_plugin, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_core::requirement::Requirement;
use fpga_core::units::Millis;
use fpga_core::utilization::Utilization;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::collections::{BTreeMap, BTreeSet};

const IDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const VENDORS: [&str; 2] = ["intel", "xilinx"];
const BOARDS: [&str; 2] = ["a10", "s10"];
const SHELLS: [&str; 2] = ["1.0", "2.0"];
/// The bitstreams of the node, by their indexes.
const ACCELERATORS: [&str; 2] = ["sobel", "mm"];
/// Length of the window of the node's state, in seconds.
const WINDOW: u64 = 300;
/// Number of containers from which on a board is full.
const LIMIT: u32 = 16;

prop_compose! {
    /// A board without an id.
    fn any_board()(
        vendor in select(&VENDORS[..]), board in select(&BOARDS[..]), shell in select(&SHELLS[..]),
        is_healthy in prop::bool::weighted(0.9), is_whole in any::<bool>(), slots in 1_u32..5,
        usage in 0..2 * WINDOW, loaded in subsequence(vec![0, 1], 0..=2),
    ) -> DeviceState {
        DeviceState {
            vendor: vendor.into(),
            board: board.into(),
            shell: shell.into(),
            health: if is_healthy { Health::Healthy } else { Health::Unhealthy },
            reconfigured_part: if is_whole { ReconfiguredPart::Board } else { ReconfiguredPart::Slot },
            slots,
            usage: Millis::from_secs(usage),
            ..mk_board("", &loaded)
        }
    }
}

prop_compose! {
    /// A node, some of whose boards its plugin does not give.
    fn any_node()(boards in prop::collection::vec((any_board(), prop::bool::weighted(0.9)), 0..8)) -> NodeState {
        let given = boards.iter().zip(IDS).filter(|((_, is_given), _)| *is_given).map(|(_, id)| (id, 0, LIMIT));
        let plugin = mk_plugin(&given.collect::<Vec<_>>());
        let with_id = |((board, _), id): ((DeviceState, bool), &str)| DeviceState { id: id.into(), ..board };
        NodeState {
            devices: boards.into_iter().zip(IDS).map(with_id).collect(),
            bitstreams: ACCELERATORS.map(|name| mk_bitstream(name, 0)).to_vec(),
            plugin: Some(plugin),
            ..mk_state()
        }
    }
}

prop_compose! {
    fn any_kind()(
        vendor in prop::option::weighted(0.3, select(&VENDORS[..])),
        board in prop::option::weighted(0.3, select(&BOARDS[..])),
        shell in prop::option::weighted(0.3, select(&SHELLS[..])),
    ) -> BoardKind {
        let [vendor, board, shell] = [vendor, board, shell].map(|text| text.map(str::to_owned));
        BoardKind { vendor, board, shell }
    }
}

prop_compose! {
    fn any_requirement()(
        kind in any_kind(), slots in 1_u32..4, boards in 1_u32..4,
        most in prop::option::weighted(0.3, 0_u64..=1000),
        valid_on in prop::collection::vec(prop::collection::vec(any_kind(), 1..3), 0..3),
        bitstreams in subsequence(&ACCELERATORS[..], 0..=2),
        loaded in prop::option::weighted(0.2, select(&ACCELERATORS[..])),
    ) -> Requirement {
        let BoardKind { vendor, board, shell } = kind;
        Requirement {
            vendor, board, shell, slots, boards, valid_on,
            max_utilization: most.map(|per_mille| Utilization::of(per_mille, 1000)),
            bitstreams: bitstreams.iter().map(|name| name.parse().unwrap()).collect(),
            loaded: loaded.iter().map(|name| name.parse().unwrap()).collect(),
            ..Requirement::default()
        }
    }
}

/// Why a container may not get the board, in words of this test: each condition is written out again.
fn violations(asked: &Requirement, state: &NodeState, board: &DeviceState) -> Vec<&'static str> {
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let is_kind = |kind: &BoardKind| {
        is(&kind.vendor, &board.vendor) && is(&kind.board, &board.board) && is(&kind.shell, &board.shell)
    };
    let has = |name: &str| board.loaded.iter().any(|index| ACCELERATORS[*index as usize] == name);
    let per_mille = board.usage.0 / WINDOW / u64::from(board.slots);
    let is_given = state.plugin.as_ref().unwrap().report.boards.contains_key(&board.id);
    let conditions = [
        (is(&asked.vendor, &board.vendor), "vendor"),
        (is(&asked.board, &board.board), "board"),
        (is(&asked.shell, &board.shell), "shell"),
        (board.slots >= asked.slots, "slots"),
        (board.health == Health::Healthy, "health"),
        (is_given, "plugin"),
        (asked.valid_on.iter().all(|kinds| kinds.iter().any(is_kind)), "validity"),
        (asked.loaded.iter().all(|name| has(&name.to_string())), "loaded bitstreams"),
        (asked.max_utilization.is_none_or(|most| Utilization::of(per_mille, 1000) <= most), "utilization"),
    ];
    conditions.into_iter().filter(|(holds, _)| !holds).map(|(_, condition)| condition).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_container_gets_a_board_that_violates_query_validity_or_limit(
        state in any_node(), asked in any_requirement(), instances in prop::collection::vec(0_u32..20, 8),
    ) {
        let occupation: BTreeMap<&str, u32> = IDS.into_iter().zip(instances).collect();
        let violated = |board: &DeviceState| violations(&asked, &state, board);
        let fitting = state.devices.iter().filter(|board| violated(board).is_empty());
        let fitting: BTreeSet<&str> = fitting.map(|board| board.id.as_str()).collect();
        match choose(&asked, &state, &occupation, LIMIT) {
            Ok(choice) => {
                let chosen: Vec<&str> = choice.boards().collect();
                for board in state.devices.iter().filter(|board| chosen.contains(&board.id.as_str())) {
                    prop_assert_eq!(violated(board), Vec::<&str>::new(), "{}", board.id);
                }
                let different: BTreeSet<&str> = chosen.iter().copied().collect();
                prop_assert_eq!((different.len(), chosen.len()), (chosen.len(), asked.boards as usize));
                let is_full = |id: &&str| occupation.instances(id) >= LIMIT;
                let full_is_taken = chosen.iter().any(is_full);
                let free_is_left = fitting.difference(&different).any(|id| !is_full(id));
                prop_assert!(!(full_is_taken && free_is_left), "a full board comes last: {choice}");
            }
            Err(shortage) => {
                prop_assert!(fitting.len() < asked.boards as usize, "{shortage}, though these fit: {fitting:?}");
            }
        }
    }
}

use super::*;
use crate::board_kind::BoardKind;
use crate::decide::{DecisionRules, filter, filter_among};
use crate::fixtures::{mk_asked, mk_bitstream, mk_board, mk_node, mk_plugin, mk_state};
use crate::matching::Rejection;
use crate::node_facts::NodeFacts;
use crate::node_state::{IN_SLOT_LEFT_OUT, LeftOut, RecentBitstream};
use crate::units::{Millis, MonotonicTime};
use proptest::prelude::*;

const SOBEL: u32 = 0;
const MM: u32 = 1;
const FFT: u32 = 2;

/// A board that is reconfigured as a whole and was used for this share of the window.
fn whole(id: &str, loaded: &[u32], percent: u64) -> DeviceState {
    DeviceState { slots: 1, reconfigured_part: ReconfiguredPart::Board, ..used(id, loaded, percent) }
}

/// A board with one slot that was used for this share of the window.
fn used(id: &str, loaded: &[u32], percent: u64) -> DeviceState {
    DeviceState { slots: 1, usage: Millis::from_secs(3 * percent), ..mk_board(id, loaded) }
}

/// A node with these boards; its bitstreams are `sobel`, `mm` and `fft`, each with a digest.
fn state(devices: Vec<DeviceState>) -> NodeState {
    let bitstream = |(name, byte): (&str, u8)| RecentBitstream {
        digest: Some(DigestPrefix::from_bytes([byte; 16])),
        ..mk_bitstream(name, 0)
    };
    let bitstreams = [("sobel", 1), ("mm", 2), ("fft", 3)].map(bitstream).to_vec();
    NodeState { devices, bitstreams, ..mk_state() }
}

fn verdicts(asked: &Requirement, nodes: &[NodeState]) -> Vec<Result<(), Rejection>> {
    let nodes: Vec<NodeFacts> = nodes.iter().cloned().map(mk_node).collect();
    let candidates: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
    filter(asked, &candidates, &DecisionRules::default(), MonotonicTime::START).verdicts
}

#[test]
fn a_load_fits_on_the_others_if_their_free_time_is_at_least_its_utilization() {
    for (own, others, covers) in [
        (0, [].as_slice(), true),
        (1, &[], false),
        (60, &[40], true),
        (61, &[40], false),
        (100, &[0], true),
        (100, &[50, 50], true),
        (100, &[51, 50], false),
        (10, &[100, 100], false),
    ] {
        let mut nodes = vec![state(vec![whole("own", &[MM], own)])];
        let other = |percent: &u64| state(vec![whole("other", &[MM], *percent), whole("fft", &[FFT], 0)]);
        nodes.extend(others.iter().map(other));
        let free_time = FreeTime::of(&nodes);
        assert_eq!(free_time.covers(&nodes[0], &nodes[0].devices[0]), covers, "{own} on {others:?}");
    }
}

#[test]
fn each_branch_of_the_decision_about_a_board_that_others_use() {
    let passes = Ok(());
    let (elsewhere, too_much) = (Err(Rejection::LoadedElsewhere), Err(Rejection::NotRedistributable));
    let mm = |percent| whole("a", &[MM], percent);
    let sick = |device| DeviceState { health: Health::Unhealthy, ..device };
    let one = |device: DeviceState| vec![device];
    for (why, boards, expected) in [
        ("nobody uses it", vec![one(mm(0))], vec![passes]),
        ("it is empty", vec![one(whole("a", &[], 50))], vec![passes]),
        ("only a slot is reconfigured", vec![one(used("a", &[MM], 50))], vec![passes]),
        ("it has the bitstream", vec![one(whole("a", &[SOBEL], 50))], vec![passes]),
        ("no other board has theirs", vec![one(mm(50))], vec![too_much]),
        ("another board has time for them", vec![one(mm(50)), one(mm(50))], vec![passes, passes]),
        ("the other has too little time", vec![one(mm(60)), one(mm(41))], vec![too_much, too_much]),
        ("several others have time", vec![one(mm(60)), one(mm(60)), one(mm(80))], vec![passes; 3]),
        ("several others have too little", vec![one(mm(60)), one(mm(60)), one(mm(81))], vec![too_much; 3]),
        (
            "the other does not answer",
            vec![one(mm(50)), one(sick(mm(0)))],
            vec![too_much, Err(Rejection::Unhealthy)],
        ),
        (
            "another board has the wanted one",
            vec![one(mm(50)), one(mm(50)), one(whole("c", &[SOBEL], 90))],
            vec![elsewhere, elsewhere, passes],
        ),
        (
            "the one that has the wanted one does not pass",
            vec![one(mm(50)), one(mm(50)), one(sick(whole("c", &[SOBEL], 0)))],
            vec![passes, passes, Err(Rejection::Unhealthy)],
        ),
        ("the node has a board that nobody uses", vec![vec![mm(90), whole("b", &[FFT], 0)]], vec![passes]),
    ] {
        let nodes: Vec<NodeState> = boards.into_iter().map(state).collect();
        assert_eq!(verdicts(&mk_asked(&["sobel"]), &nodes), expected, "{why}");
    }
}

#[test]
fn a_pod_without_bitstreams_and_a_bitstream_that_is_not_known_reject_no_board() {
    let busy = || state(vec![whole("a", &[MM], 50)]);
    assert_eq!(verdicts(&mk_asked(&[]), &[busy()]), [Ok(())]);
    let mut left_out = busy();
    left_out.devices[0].loaded = vec![IN_SLOT_LEFT_OUT];
    left_out.left_out = LeftOut { loaded: 1, ..LeftOut::default() };
    assert_eq!(verdicts(&mk_asked(&["sobel"]), &[left_out]), [Ok(())]);
    let mut without_digest = busy();
    without_digest.bitstreams[1].digest = None;
    assert_eq!(verdicts(&mk_asked(&["sobel"]), &[without_digest]), [Ok(())]);
}

#[test]
fn boards_of_nodes_that_are_no_candidates_take_load_but_their_bitstreams_help_no_pod() {
    let (busy, other) = (state(vec![whole("a", &[MM], 50)]), state(vec![whole("b", &[MM, SOBEL], 40)]));
    let node = mk_node(busy.clone());
    let asked = mk_asked(&["sobel"]);
    let rules = DecisionRules::default();
    let among = |known: &[NodeState]| {
        let free_time = || FreeTime::of(known);
        filter_among(None, &asked, &[Some(node.known())], free_time, &rules, MonotonicTime::START).verdicts
    };
    assert_eq!(among(std::slice::from_ref(&busy)), [Err(Rejection::NotRedistributable)]);
    assert_eq!(among(&[busy, other]), [Ok(())]);
}

#[test]
fn so_many_boards_are_taken_as_the_pod_lacks() {
    let asked = Requirement { boards: 2, ..mk_asked(&["sobel"]) };
    let own = |second| state(vec![whole("a", &[SOBEL], 10), whole("b", &[MM], second)]);
    let other = |percent| state(vec![whole("c", &[MM], percent)]);
    let too_few = Err(Rejection::TooFewBoards);
    assert_eq!(verdicts(&asked, &[own(30), other(70)]), [Ok(()), too_few]);
    assert_eq!(verdicts(&asked, &[own(30), other(71)]), [Err(Rejection::NotRedistributable), too_few]);
    assert_eq!(verdicts(&asked, &[own(0), other(100)]), [Ok(()), too_few]);
}

/// As [`used`], whose name is a variable below.
fn used_board(loaded: &[u32], percent: u64) -> DeviceState {
    used("", loaded, percent)
}

prop_compose! {
    fn any_board()(
        is_whole: bool, loaded in prop::option::of(0_u32..3), tenths in 0_u64..=10, healthy in prop::bool::weighted(0.8),
        vendor in 0_usize..2, board in 0_usize..2, used in prop::option::weighted(0.9, 0_u32..3),
    ) -> (DeviceState, Option<u32>) {
        let loaded: Vec<u32> = loaded.into_iter().collect();
        let device = if is_whole { whole("", &loaded, tenths * 10) } else { used_board(&loaded, tenths * 10) };
        let device = DeviceState {
            vendor: ["intel", "xilinx"][vendor].into(),
            board: ["a10", "s10"][board].into(),
            health: if healthy { Health::Healthy } else { Health::Unhealthy },
            ..device
        };
        (device, used)
    }
}

/// A node, and of each of its boards the number of its containers, of two at most; none if the plugin has not the board.
fn any_nodes() -> impl Strategy<Value = Vec<(NodeState, Vec<Option<u32>>)>> {
    let node = prop::collection::vec(any_board(), 0..4).prop_map(|boards| {
        let (mut devices, used): (Vec<DeviceState>, Vec<Option<u32>>) = boards.into_iter().unzip();
        const IDS: [&str; 4] = ["b0", "b1", "b2", "b3"];
        devices.iter_mut().zip(IDS).for_each(|(device, id)| device.id = id.into());
        let offered = IDS.iter().zip(&used).filter_map(|(id, used)| Some((*id, (*used)?, 2)));
        let plugin = Some(mk_plugin(&offered.collect::<Vec<_>>()));
        (NodeState { plugin, ..state(devices) }, used)
    });
    prop::collection::vec(node, 1..5)
}

proptest! {
    #[test]
    fn a_node_passes_if_and_only_if_its_boards_meet_query_validity_and_limit_and_others_keep_their_bitstream_or_fit_elsewhere(
        nodes in any_nodes(), wanted in 1_usize..3, is_of_intel: bool, most in prop::option::of(0_u64..=10),
        valid_on in prop::option::of(0_usize..2),
    ) {
        let kind = |board: usize| BoardKind { board: Some(["a10", "s10"][board].into()), ..BoardKind::default() };
        let asked = Requirement {
            vendor: is_of_intel.then(|| "intel".to_owned()),
            boards: u32::try_from(wanted).unwrap(),
            max_utilization: most.map(|most| Utilization::of(most, 10)),
            valid_on: valid_on.into_iter().map(|board| vec![kind(board)]).collect(),
            ..mk_asked(&["sobel"])
        };
        // Written out once more, board by board.
        let tenths = |device: &DeviceState| device.usage.0 / 30_000;
        let meets = |device: &DeviceState, used: &Option<u32>| {
            device.health == Health::Healthy && used.is_some_and(|used| used < 2)
                && (!is_of_intel || device.vendor == "intel")
                && valid_on.is_none_or(|board| device.board == ["a10", "s10"][board])
                && most.is_none_or(|most| tenths(device) <= most)
        };
        let others_lose = |device: &DeviceState| {
            device.reconfigured_part == ReconfiguredPart::Board && tenths(device) > 0
                && device.loaded.first().is_some_and(|loaded| *loaded != SOBEL)
        };
        let fits_elsewhere = |of: usize, number: usize, device: &DeviceState| {
            let others = nodes.iter().enumerate().flat_map(|(node, (state, used))| {
                state.devices.iter().zip(used).enumerate().map(move |(board, it)| ((node, board), it))
            });
            let free = others.filter(|(place, (other, used))| {
                *place != (of, number) && other.health == Health::Healthy && used.is_some()
                    && other.loaded == device.loaded
            });
            free.map(|(_, (other, _))| 10 - tenths(other)).sum::<u64>() >= tenths(device)
        };
        let count = |(state, used): &(NodeState, Vec<Option<u32>>), is: &dyn Fn(usize, &DeviceState) -> bool| {
            let boards = state.devices.iter().zip(used).enumerate();
            boards.filter(|(number, (device, used))| meets(device, used) && is(*number, device)).count() >= wanted
        };
        let is_loaded_somewhere = nodes.iter().any(|node| count(node, &|_, device| device.loaded == [SOBEL]));
        let expected: Vec<bool> = nodes.iter().enumerate().map(|(of, node)| {
            count(node, &|_, device| !others_lose(device))
                || !is_loaded_somewhere
                    && count(node, &|number, device| !others_lose(device) || fits_elsewhere(of, number, device))
        }).collect();
        let states: Vec<NodeState> = nodes.iter().map(|(state, _)| state.clone()).collect();
        let passed: Vec<bool> = verdicts(&asked, &states).iter().map(Result::is_ok).collect();
        prop_assert_eq!(passed, expected);
    }
}

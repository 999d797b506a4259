//! Nodes with different numbers and kinds of boards are compared by the usage per slot of the boards of the requested
//! kind. For nodes with one board of equal size the order is the paper's.

use super::*;
use crate::expected_load::Expected;
use crate::fixtures::{mk_device, mk_state};
use crate::node_state::{DeviceState, NodeState};

/// A node with a board for each pair of vendor and usage; the usage is in per cent of the window.
fn node(boards: &[(&str, u64)]) -> NodeFacts {
    let mut state = mk_state();
    let window = state.window.0;
    let board = |(number, (vendor, percent)): (usize, &(&str, u64))| {
        let used = Millis(window * 4 * percent / 100);
        DeviceState {
            id: format!("dm{number}"),
            usage: used,
            reconfiguration: Millis(used.0 / 10),
            ..mk_device(vendor, "board", "1")
        }
    };
    state.devices = boards.iter().enumerate().map(board).collect();
    for device in &state.devices {
        state.usage += device.usage;
        state.reconfiguration += device.reconfiguration;
    }
    // Evenly over the window of 300 s, in slices of 10 s.
    state.buckets.usage = vec![Millis(state.usage.0 / 30); 30];
    state.buckets.reconfiguration = vec![Millis(state.reconfiguration.0 / 30); 30];
    assert_eq!(crate::node_state::codec::validate(&state), Ok(()));
    mk_node(state)
}

fn by(ranking: Ranking, vendor: Option<&str>, nodes: &[&NodeFacts], rules: &DecisionRules) -> Vec<NodeScore> {
    let asked = Requirement { vendor: vendor.map(str::to_owned), ..Requirement::default() };
    let candidates: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
    prioritize_ranking(ranking, &asked, &candidates, &[], rules, MonotonicTime::START).nodes()
}

fn scores_of(vendor: Option<&str>, nodes: &[&NodeFacts], weights: &str) -> Vec<u32> {
    by(Ranking::PerSlot, vendor, nodes, &rules(weights)).iter().map(|node| node.score).collect()
}

#[test]
fn ten_boards_at_a_third_win_against_one_that_is_saturated() {
    let (ten, one) = (node(&[("intel", 33); 10]), node(&[("intel", 100)]));
    for weights in ["0-1-0", "0-0-1"] {
        assert_eq!(scores_of(None, &[&ten, &one], weights), [10, 5], "{weights}");
        let whole = by(Ranking::WholeNode, None, &[&ten, &one], &rules(weights));
        assert_eq!(whole.iter().map(|node| node.score).collect::<Vec<_>>(), [5, 10], "as it was before");
    }
    let measured = by(Ranking::PerSlot, None, &[&ten, &one], &rules("0-1-0"));
    assert_eq!(measured[0].measured.map(|m| (m.usage, m.slots)), Some((Millis(3_960_000), 40)));
}

#[test]
fn a_pod_that_wants_one_vendor_is_not_charged_for_another_ones_boards() {
    let mixed = node(&[("intel", 10), ("xilinx", 100), ("xilinx", 100)]);
    let intel = node(&[("intel", 20)]);
    assert_eq!(scores_of(Some("intel"), &[&mixed, &intel], "0-1-0"), [10, 5]);
    assert_eq!(scores_of(Some("intel"), &[&mixed, &intel], "0-0-1"), [10, 5]);
    assert_eq!(
        scores_of(None, &[&mixed, &intel], "0-1-0"),
        [5, 10],
        "who takes any board meets the busy ones, too"
    );
    let of_mixed = by(Ranking::PerSlot, Some("intel"), &[&mixed], &rules("0-1-0"))[0].measured.unwrap();
    assert_eq!(
        (of_mixed.usage, of_mixed.reconfiguration, of_mixed.slots),
        (Millis(120_000), Millis(12_000), 4)
    );
}

#[test]
fn a_board_that_does_not_answer_gives_no_slots_and_no_use() {
    let NodeFacts { knowledge: Knowledge::Known(received), .. } = node(&[("intel", 10), ("intel", 90)])
    else {
        unreachable!()
    };
    let mut state: NodeState = received.state().clone();
    state.devices[1].health = crate::device::Health::Unhealthy;
    let measured =
        by(Ranking::PerSlot, None, &[&mk_node(state.clone())], &rules("0-1-0"))[0].measured.unwrap();
    assert_eq!((measured.usage, measured.slots), (Millis(120_000), 4));
    state.devices[0].health = crate::device::Health::Unhealthy;
    let measured = by(Ranking::PerSlot, None, &[&mk_node(state)], &rules("0-1-0"))[0].measured.unwrap();
    assert_eq!((measured.usage, measured.slots), (Millis(300_000), 0), "as one slot that is always in use");
}

#[test]
fn usage_that_no_board_is_named_for_is_spread_over_all_slots() {
    let mut state = mk_state();
    state.devices = vec![mk_device("intel", "a10", "1"), mk_device("xilinx", "u250", "1")];
    state.devices[1].slots = 12;
    state.devices[0].usage = Millis(8_000);
    state.usage = Millis(24_000);
    state.buckets.usage = vec![Millis(24_000)];
    let measured =
        by(Ranking::PerSlot, Some("intel"), &[&mk_node(state)], &rules("0-1-0"))[0].measured.unwrap();
    assert_eq!(measured.usage, Millis(8_000 + 16_000 / 4));
}

#[test]
fn a_board_that_is_larger_bears_more() {
    let small = node(&[("intel", 50)]);
    let mut state = mk_state();
    state.devices =
        vec![DeviceState { slots: 8, usage: Millis(800_000), ..mk_device("intel", "board", "1") }];
    state.usage = Millis(800_000);
    state.buckets.usage = vec![Millis(26_666); 30];
    assert_eq!(scores_of(None, &[&small, &mk_node(state)], "0-1-0"), [5, 10], "600 s of 4 slots, 800 s of 8");
}

proptest! {
    #[test]
    fn where_every_node_has_one_board_of_equal_size_the_order_is_the_papers(
        used in prop::collection::vec((0_u64..40_000, 0_u64..40_000), 1..30), weights in (0_u8..5, 0_u8..5, 0_u8..5),
        expected in prop::collection::vec((0_u64..50_000, 0_u64..5_000), 30),
    ) {
        let nodes: Vec<NodeFacts> =
            used.iter().map(|(usage, reconfiguration)| mk_node(mk_busy(*usage, *reconfiguration))).collect();
        let candidates: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
        let weights = Weights::new(weights.0.into(), weights.1.into(), weights.2.into()).unwrap();
        let rules = DecisionRules { weights, ..DecisionRules::default() };
        let expected: Vec<Expected> = expected
            .iter()
            .take(nodes.len())
            .map(|(usage, shown)| Expected { usage: Millis(*usage), shown: Millis(*shown), pods: 1.0, unknown: 0.0 })
            .collect();
        let by = |ranking| {
            let asked = Requirement::default();
            prioritize_ranking(ranking, &asked, &candidates, &expected, &rules, MonotonicTime::START).nodes()
        };
        let scores = |nodes: Vec<NodeScore>| nodes.iter().map(|node| node.score).collect::<Vec<_>>();
        prop_assert_eq!(scores(by(Ranking::PerSlot)), scores(by(Ranking::WholeNode)));
    }

    #[test]
    fn boards_that_are_added_idle_make_no_node_worse(
        others in prop::collection::vec(0_u64..100, 1..10), percent in 0_u64..100, boards in 1_usize..6,
    ) {
        let others: Vec<NodeFacts> = others.iter().map(|percent| node(&[("intel", *percent)])).collect();
        let score = |idle: usize| {
            let mut own = vec![("intel", percent); boards];
            own.extend(vec![("intel", 0); idle]);
            let own = node(&own);
            let nodes: Vec<_> = others.iter().chain([&own]).collect();
            *scores_of(Some("intel"), &nodes, "0-1-1").last().unwrap()
        };
        prop_assert!(score(0) <= score(1) && score(1) <= score(3));
    }
}

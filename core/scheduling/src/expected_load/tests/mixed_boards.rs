//! Nodes with boards of several kinds: the expected usage of a pod falls on the boards of its kind.

use super::*;
use crate::fixtures::mk_device;
use crate::requirement::Requirement;

/// A node with an Intel board of 4 slots and a Xilinx board of 12, with these usages in milliseconds.
fn mixed(intel: u64, xilinx: u64) -> NodeState {
    let mut state = mk_busy(intel + xilinx, 0);
    state.devices = vec![mk_device("intel", "a10", "1"), mk_device("xilinx", "u250", "1")];
    (state.devices[0].usage, state.devices[1].usage) = (Millis(intel), Millis(xilinx));
    state.devices[1].slots = 12;
    state
}

fn kind(vendor: &str) -> AskedKind {
    AskedKind::of(&Requirement { vendor: Some(vendor.into()), ..Requirement::default() })
}

fn of_kind(uid: &str, vendor: &str, node: &str) -> PlacedPod {
    PlacedPod { kind: kind(vendor), ..owned(uid, vendor, node) }
}

#[test]
fn a_pod_counts_on_the_boards_that_it_asks_for_and_on_no_others() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(
        &PlacedPod { owner: Some("rs".into()), ..of_kind("p", "intel", "n") },
        Millis::ZERO,
        MonotonicTime::START,
    );
    let on = |asked: &AskedKind| all.on("n", &received(mixed(0, 0), 0), asked, MonotonicTime::START);
    assert_eq!((on(&kind("intel")).usage, on(&kind("intel")).pods), (Millis(60_000), 1.0));
    assert_eq!(on(&kind("xilinx")), Expected::default());
    assert_eq!(on(&AskedKind::ANY).usage, Millis(60_000), "who takes any board takes that one, too");
}

#[test]
fn a_pod_that_takes_any_board_is_spread_over_all_by_their_slots() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, MonotonicTime::START);
    all.waits("h", MonotonicTime::START);
    all.assume("h", Some("rs"), AskedKind::ANY, &["n"], MonotonicTime::START);
    let on = |asked: &AskedKind| all.on("n", &received(mixed(0, 0), 0), asked, MonotonicTime::START);
    assert_eq!(on(&kind("intel")).usage, Millis(30_000), "of two pods a quarter each");
    assert_eq!(on(&kind("xilinx")).usage, Millis(90_000));
    assert_eq!(on(&AskedKind::ANY).usage, Millis(120_000));
}

#[test]
fn means_are_learnt_from_the_boards_that_pods_run_on() {
    let mut all = ExpectedLoads::default();
    for uid in ["x1", "x2"] {
        all.bound(&of_kind(uid, "xilinx", "n"), Millis(WINDOW), MonotonicTime::START);
    }
    all.bound(&of_kind("i", "intel", "n"), Millis(WINDOW), MonotonicTime::START);
    let state = received(mixed(5_000, 80_000), 0);
    let learnt = all.learnt(|_| Some(&state), MonotonicTime::START);
    all.expect(&learnt);
    let near = |owner: &str, should: f64| all.means.of(owner).is_some_and(|is| (is - should).abs() < 1.0);
    assert!(near("xilinx", 40_000.0) && near("intel", 5_000.0), "{:?}", all.means);
}

#[test]
fn usage_of_other_boards_is_not_attributed_to_a_pod() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let pod = PlacedPod { owner: Some("rs".into()), ..of_kind("p", "intel", "n") };
    all.bound(&pod, Millis::ZERO, MonotonicTime::START);
    let usage =
        |state: NodeState| all.on("n", &received(state, 10_000), &kind("intel"), MonotonicTime(10_000)).usage;
    assert_eq!(usage(mixed(0, 90_000)), Millis(58_000), "time alone has passed");
    assert_eq!(usage(mixed(40_000, 0)), Millis(20_000));
}

#[test]
fn a_pod_that_no_board_suits_may_run_on_any() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let stranger = PlacedPod { owner: Some("rs".into()), ..of_kind("p", "amd", "n") };
    all.bound(&stranger, Millis::ZERO, MonotonicTime::START);
    let on = |asked: &AskedKind| all.on("n", &received(mixed(0, 0), 0), asked, MonotonicTime::START).usage;
    assert_eq!((on(&kind("intel")), on(&kind("xilinx"))), (Millis(15_000), Millis(45_000)));
}

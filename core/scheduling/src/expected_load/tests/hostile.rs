//! The influence of a node with false usage on the expectations of other nodes.

use super::*;
use crate::fixtures::mk_device;
use crate::node_state::codec::{MAX_DEVICES, MAX_SLOTS, MAX_WINDOW, validate};

/// A state with the greatest usage that validation accepts.
fn liar() -> Received {
    let mut state = mk_state();
    let board = |number: usize| crate::node_state::DeviceState {
        id: number.to_string(),
        slots: MAX_SLOTS,
        ..mk_device("intel", "a10", "1")
    };
    state.devices = (0..MAX_DEVICES).map(board).collect();
    (state.window, state.buckets.bucket) = (MAX_WINDOW, MAX_WINDOW);
    state.usage = Millis(MAX_WINDOW.0 * state.slots());
    state.buckets.usage = vec![state.usage];
    assert_eq!(validate(&state), Ok(()));
    received(state, 0)
}

#[test]
fn one_node_with_false_usage_moves_a_mean_by_its_share_of_the_nodes() {
    let (honest, liar) = (received(mk_busy(1_000, 0), 0), liar());
    for honest_nodes in [2_usize, 9, 99] {
        let mut all = ExpectedLoads::default();
        let long_ago = Millis(MAX_WINDOW.0);
        for node in 0..honest_nodes {
            all.bound(&owned(&format!("p{node}"), "rs", &format!("n{node}")), long_ago, MonotonicTime::START);
        }
        all.bound(&owned("liar", "rs", "liar"), long_ago, MonotonicTime::START);
        let state = |name: &str| Some(if name == "liar" { &liar } else { &honest });
        let learnt = all.learnt(state, MonotonicTime::START);
        all.expect(&learnt);
        let nodes = honest_nodes as f64;
        let most = 1_000.0 * (nodes + means::MOST_TIMES_THE_MEDIAN) / (nodes + 1.0);
        let is = |of: &str| all.means.of(of).unwrap();
        assert!((is("rs") - most).abs() < 1.0 && (is("new") - most).abs() < 1.0, "{} for {nodes}", is("rs"));
    }
}

#[test]
fn a_node_that_is_busier_than_others_counts_in_full_up_to_four_times_their_median() {
    let mut all = ExpectedLoads::default();
    let states = [1_000, 1_000, 4_000].map(|usage| received(mk_busy(usage, 0), 0));
    for (number, _) in states.iter().enumerate() {
        all.bound(
            &owned(&format!("p{number}"), "rs", &number.to_string()),
            Millis(WINDOW),
            MonotonicTime::START,
        );
    }
    let learnt = all.learnt(|name| states.get(name.parse::<usize>().ok()?), MonotonicTime::START);
    assert_eq!(learnt.cluster(), Some(2_000.0));
}

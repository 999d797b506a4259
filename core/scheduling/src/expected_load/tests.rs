mod bursts;
mod hostile;
mod laws;
mod mixed_boards;

use super::*;
use crate::fixtures::{mk_bitstream, mk_busy, mk_node, mk_state};
use crate::node_state::NodeState;
use crate::per_slot::PerSlot;

/// Window of the fixtures, in milliseconds.
const WINDOW: u64 = 300_000;

fn pod(uid: &str, node: &str) -> PlacedPod {
    PlacedPod {
        uid: uid.into(),
        owner: None,
        node: node.into(),
        kind: AskedKind::ANY,
        bitstreams: Vec::new(),
    }
}

fn owned(uid: &str, owner: &str, node: &str) -> PlacedPod {
    PlacedPod { owner: Some(owner.into()), ..pod(uid, node) }
}

/// A state measured `at` that moment and received without delay.
fn received(state: NodeState, at: u64) -> Received {
    Received::new(state, MonotonicTime(at), Millis::ZERO)
}

fn idle() -> Received {
    received(mk_state(), 0)
}

/// Loads that have learnt a mean of `usage` per window from one pod of `owner`.
fn where_a_pod_uses(usage: u64, owner: &str) -> ExpectedLoads {
    let mut all = ExpectedLoads::default();
    all.bound(&owned("old", owner, "elsewhere"), Millis(WINDOW), MonotonicTime::START);
    let state = received(mk_busy(usage, 0), 0);
    let learnt = all.learnt(|_| Some(&state), MonotonicTime::START);
    all.expect(&learnt);
    all
}

/// Scores a pod that is known to wait for a node.
fn assume(all: &mut ExpectedLoads, uid: &str, owner: Option<&str>, best: &[&str], now: MonotonicTime) {
    all.waits(uid, now);
    all.assume(uid, owner, AskedKind::ANY, best, now);
}

#[test]
fn the_mean_of_the_owner_is_expected_and_decays_over_one_window() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, MonotonicTime(1_000));
    for (now, usage) in [(1_000, 60_000), (76_000, 45_000), (151_000, 30_000), (301_000, 0), (900_000, 0)] {
        assert_eq!(
            all.on("n", &idle(), &AskedKind::ANY, MonotonicTime(now)).usage,
            Millis(usage),
            "at {now}"
        );
    }
    assert_eq!(all.on("other", &idle(), &AskedKind::ANY, MonotonicTime(1_000)), Expected::default());
}

#[test]
fn a_pod_of_a_new_owner_has_the_mean_of_the_cluster_or_is_unknown() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "new", "n"), Millis::ZERO, MonotonicTime::START);
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime::START).usage, Millis(60_000));
    all.expect(&Learnt::default());
    let expected = all.on("n", &idle(), &AskedKind::ANY, MonotonicTime::START);
    assert_eq!((expected.usage, expected.unknown), (Millis::ZERO, 1.0));
}

#[test]
fn a_mean_is_of_pods_that_were_there_for_a_window_and_shares_the_nodes_usage() {
    let mut all = ExpectedLoads::default();
    all.bound(&owned("a1", "a", "n1"), Millis::ZERO, MonotonicTime::START);
    all.bound(&owned("a2", "a", "n2"), Millis::ZERO, MonotonicTime::START);
    all.bound(&owned("b1", "b", "n2"), Millis::ZERO, MonotonicTime::START);
    all.bound(&owned("c1", "c", "n1"), Millis::ZERO, MonotonicTime(WINDOW / 2));
    all.bound(&owned("d1", "d", "not-fresh"), Millis::ZERO, MonotonicTime::START);
    let [n1, n2] = [9_000, 4_000].map(|usage| received(mk_busy(usage, 0), WINDOW));
    let state = |node: &str| match node {
        "n1" => Some(&n1),
        "n2" => Some(&n2),
        _ => None,
    };
    let learnt = all.learnt(state, MonotonicTime(WINDOW));
    assert_eq!(learnt.owners(), 2);
    all.expect(&learnt);
    let means = &all.means;
    // n1: 9 s for one pod and half of another; n2: 4 s for two pods.
    let near = |is: Option<f64>, should: f64| is.is_some_and(|is| (is - should).abs() < 1e-9);
    assert!(near(means.of("a"), (6_000.0 + 2_000.0) / 2.0), "{means:?}");
    assert!(near(means.of("b"), 2_000.0));
    assert!(near(means.of("c"), 10_000.0 / 3.0), "it is like the cluster's: {means:?}");
    assert!(near(means.of("d"), 10_000.0 / 3.0));
}

#[test]
fn a_mean_of_zero_is_discarded() {
    let mut all = where_a_pod_uses(0, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, MonotonicTime::START);
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime::START).unknown, 1.0);
}

#[test]
fn measured_usage_of_the_pod_itself_is_no_longer_expected() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, MonotonicTime::START);
    let usage = |of: u64| {
        all.on("n", &received(mk_busy(of, 0), 10_000), &AskedKind::ANY, MonotonicTime(10_000)).usage
    };
    assert_eq!(usage(0), Millis(58_000));
    assert_eq!(usage(1_000), Millis(58_000), "slower than expected: the rest is still to come");
    assert_eq!(usage(40_000), Millis(20_000), "faster: only what is left of e");
    assert_eq!(usage(60_000), Millis::ZERO);
    assert_eq!(usage(90_000), Millis::ZERO);
}

#[test]
fn usage_from_before_its_binding_is_not_the_pods() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, MonotonicTime(10_000));
    let before = received(mk_busy(90_000, 0), 10_000);
    assert_eq!(all.on("n", &before, &AskedKind::ANY, MonotonicTime(10_000)).usage, Millis(60_000));
}

#[test]
fn usage_is_not_the_pods_while_none_of_its_bitstreams_was_used_since() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let bitstreams = vec!["sobel".parse().unwrap(), "mm".parse().unwrap()];
    all.bound(&PlacedPod { bitstreams, ..owned("p", "rs", "n") }, Millis::ZERO, MonotonicTime::START);
    let usage = |bitstreams| {
        let state = NodeState { bitstreams, ..mk_busy(60_000, 0) };
        all.on("n", &received(state, 10_000), &AskedKind::ANY, MonotonicTime(10_000)).usage
    };
    assert_eq!(usage(vec![]), Millis(58_000));
    assert_eq!(usage(vec![mk_bitstream("aes", 0)]), Millis(58_000));
    assert_eq!(usage(vec![mk_bitstream("mm", 10_001)]), Millis(58_000), "used before the pod was bound");
    assert_eq!(usage(vec![mk_bitstream("aes", 0), mk_bitstream("mm", 9_000)]), Millis::ZERO);
}

#[test]
fn usage_is_shared_by_all_pods_of_the_node() {
    let mut all = where_a_pod_uses(60_000, "rs");
    for uid in ["a", "b", "c"] {
        all.bound(&owned(uid, "rs", "n"), Millis::ZERO, MonotonicTime::START);
    }
    assert_eq!(
        all.on("n", &received(mk_busy(90_000, 0), 10_000), &AskedKind::ANY, MonotonicTime(10_000)).usage,
        Millis(3 * 30_000)
    );
}

#[test]
fn a_pod_that_is_gone_is_not_expected_and_one_seen_again_keeps_its_time() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let there = owned("p", "rs", "n");
    all.bound(&there, Millis::ZERO, MonotonicTime::START);
    all.bound(&there, Millis::ZERO, MonotonicTime(150_000));
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime(150_000)).usage, Millis(30_000));
    all.listed(&HashSet::from(["old".to_owned(), "p".to_owned()]));
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime(150_000)).usage, Millis(30_000));
    all.listed(&HashSet::from(["old".to_owned()]));
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime(150_000)), Expected::default());
    all.gone("old");
    all.expect(&Learnt::default());
    assert_eq!((all.pods(), all.nodes.len(), all.means.owners()), (0, 0, 0));
}

#[test]
fn the_age_of_a_pod_counts_from_its_binding_and_not_from_first_sight() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("new", "rs", "n"), Millis::ZERO, MonotonicTime::START);
    all.bound(&owned("older", "rs", "n"), Millis(WINDOW / 2), MonotonicTime::START);
    all.bound(&owned("oldest", "rs", "n"), Millis(WINDOW), MonotonicTime::START);
    assert_eq!(all.on("n", &idle(), &AskedKind::ANY, MonotonicTime::START).usage, Millis(90_000));
}

#[test]
fn an_assumed_pod_is_split_and_ends_with_the_binding_or_after_five_seconds() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let usage =
        |all: &ExpectedLoads, node, now| all.on(node, &idle(), &AskedKind::ANY, MonotonicTime(now)).usage.0;
    assume(&mut all, "p", Some("rs"), &["n1", "n2"], MonotonicTime::START);
    assert_eq!((usage(&all, "n1", 0), usage(&all, "n2", 4_999)), (30_000, 30_000));
    assert_eq!(usage(&all, "n1", 5_000), 0);
    assume(&mut all, "p", Some("rs"), &["n2"], MonotonicTime(4_000));
    assert_eq!((usage(&all, "n1", 4_000), usage(&all, "n2", 6_000)), (0, 60_000));
    all.bound(&owned("p", "rs", "n1"), Millis::ZERO, MonotonicTime(6_000));
    assert_eq!((usage(&all, "n1", 6_000), usage(&all, "n2", 6_000)), (60_000, 0));
    assume(&mut all, "p", Some("rs"), &["n2"], MonotonicTime(6_000));
    assert_eq!(usage(&all, "n2", 6_000), 0, "it is bound already");
    assert_eq!(all.assumed_pods(), 0);
}

#[test]
fn assumed_pods_that_are_never_bound_are_forgotten() {
    let mut all = ExpectedLoads::default();
    assume(&mut all, "p", None, &["n1", "n2"], MonotonicTime::START);
    assume(&mut all, "p", None, &["n1"], MonotonicTime(3_000));
    all.expire_assumed(MonotonicTime(6_000));
    assert_eq!(all.assumed_pods(), 1, "it was given again meanwhile");
    all.expire_assumed(MonotonicTime(8_000));
    assert_eq!((all.assumed_pods(), all.nodes.len(), all.assumed_by_age.len()), (0, 0, 0));
}

#[test]
fn memory_is_bounded() {
    let mut all = ExpectedLoads::default();
    for i in 0..MAX_PODS_PER_NODE {
        assert_eq!(all.bound(&pod(&i.to_string(), "n"), Millis::ZERO, MonotonicTime::START), Kept::Yes);
    }
    assert_eq!(all.bound(&pod("one-more", "n"), Millis::ZERO, MonotonicTime::START), Kept::NoRoom);
    assert_eq!(all.pods(), MAX_PODS_PER_NODE);
    let nodes: Vec<String> = (0..=MAX_ASSUMED_NODES).map(|i| i.to_string()).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    assume(&mut all, "everywhere", None, &nodes, MonotonicTime::START);
    assert_eq!(all.assumed_pods(), 0, "a share of nearly nothing");
    assume(&mut all, &"u".repeat(1_000), None, &["n"], MonotonicTime::START);
    assert_eq!(all.assumed_pods(), 0, "no UID");
    for i in 0..2 * MAX_ASSUMED_PODS {
        assume(&mut all, &format!("h{i}"), None, &["n"], MonotonicTime::START);
        assume(&mut all, "again-and-again", None, &["n"], MonotonicTime::START);
    }
    assert!(
        all.assumed_pods() <= MAX_ASSUMED_PODS && all.assumed_by_age.len() <= MAX_ASSUMED_PODS,
        "{}",
        all.assumed_by_age.len()
    );
    for i in 0..2 * MAX_WAITING {
        all.waits(&format!("w{i}"), MonotonicTime::START);
    }
    assert!(all.waiting.len() <= MAX_WAITING);
}

#[test]
fn a_pod_that_is_scored_again_is_not_charged_for_its_own_assumption() {
    let mut all = where_a_pod_uses(60_000, "rs");
    assume(&mut all, "p", Some("rs"), &["n"], MonotonicTime::START);
    let for_pod = |uid| {
        let (node, at) = (mk_node(idle().state().clone()), MonotonicTime(1_000));
        let nodes = [Some(("n", &ArenaKey::default(), node.known()))];
        all.on_nodes(uid, nodes.into_iter(), &AskedKind::ANY, at)[0].usage
    };
    assert_eq!((for_pod("p"), for_pod("another")), (Millis::ZERO, Millis(60_000)));
}

#[test]
fn a_decision_for_a_pod_that_is_not_known_counts_when_the_pod_is_seen_waiting() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let usage = |all: &ExpectedLoads| all.on("n", &idle(), &AskedKind::ANY, MonotonicTime(1_000)).usage;
    all.assume("p", Some("rs"), AskedKind::ANY, &["n"], MonotonicTime::START);
    assert_eq!((usage(&all), all.assumed_pods()), (Millis::ZERO, 0));
    all.waits("p", MonotonicTime(1_000));
    assert_eq!((usage(&all), all.assumed_pods()), (Millis(60_000), 1));
    all.assume("late", Some("rs"), AskedKind::ANY, &["n"], MonotonicTime::START);
    all.waits("late", MonotonicTime::START + ASSUMED_POD_TTL);
    assert_eq!(all.assumed_pods(), 1, "its time was over");
}

#[test]
fn decisions_about_pods_that_do_not_exist_add_nothing_and_displace_no_assumed_pod() {
    let mut all = where_a_pod_uses(60_000, "rs");
    assume(&mut all, "real", Some("rs"), &["n"], MonotonicTime::START);
    for i in 0..2 * MAX_ASSUMED_PODS {
        all.assume(&format!("made-up-{i}"), Some("rs"), AskedKind::ANY, &["n"], MonotonicTime::START);
    }
    assert_eq!(
        (all.on("n", &idle(), &AskedKind::ANY, MonotonicTime::START).usage, all.assumed_pods()),
        (Millis(60_000), 1)
    );
    assert!(all.unconfirmed.len() <= unconfirmed::MAX_UNCONFIRMED, "{}", all.unconfirmed.len());
    all.expire_assumed(MonotonicTime::START + ASSUMED_POD_TTL);
    assert_eq!(all.unconfirmed.len(), 0);
}

#[test]
fn a_pod_that_is_gone_or_missing_in_a_list_no_longer_waits() {
    let mut all = ExpectedLoads::default();
    for uid in ["a", "b", "c"] {
        all.waits(uid, MonotonicTime::START);
    }
    all.gone("a");
    all.listed(&HashSet::from(["c".to_owned()]));
    for uid in ["a", "b", "c"] {
        all.assume(uid, None, AskedKind::ANY, &["n"], MonotonicTime::START);
    }
    assert_eq!(all.assumed_pods(), 1);
}

#[test]
fn an_unknown_pod_costs_one_rank_and_not_more_than_it_must() {
    let measured = [10, 20, 30, 40].map(PerSlot);
    let with = |unknown: [f64; 4]| {
        loads(&measured, &unknown.map(|unknown| ExpectedPerSlot { unknown, ..ExpectedPerSlot::default() }))
    };
    assert_eq!(with([0.0; 4]), measured);
    assert_eq!(with([1.0, 0.0, 0.0, 0.0])[0], PerSlot(21));
    assert_eq!(with([0.6, 0.0, 0.4, 0.0]), [21, 20, 30, 40].map(PerSlot), "to the nearest whole pod");
    assert_eq!(with([3.0, 2.0, 1.0, 0.0]), [41, 41, 41, 40].map(PerSlot));
    assert_eq!(with([4.0, 3.0, 2.0, 1.0]), [42; 4].map(PerSlot), "above all others pods are counted");
    let ties = loads(
        &[PerSlot(5); 3],
        &[1.0, 2.0, 0.0].map(|unknown| ExpectedPerSlot { unknown, ..ExpectedPerSlot::default() }),
    );
    assert_eq!(ties, [6, 7, 5].map(PerSlot));
}

#[test]
fn an_unknown_pods_own_usage_counts_towards_its_rank() {
    // The node's load was 10 before; the pod raised it to 25.
    let measured = [25, 20, 30].map(PerSlot);
    let one = ExpectedPerSlot { unknown: 1.0, shown: PerSlot(15), ..ExpectedPerSlot::default() };
    assert_eq!(
        loads(&measured, &[one, ExpectedPerSlot::default(), ExpectedPerSlot::default()])[0],
        PerSlot(25)
    );
    let two = ExpectedPerSlot { unknown: 2.0, ..one };
    assert_eq!(
        loads(&measured, &[two, ExpectedPerSlot::default(), ExpectedPerSlot::default()])[0],
        PerSlot(31)
    );
}

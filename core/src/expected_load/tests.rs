use super::*;
use crate::decide::{Candidate, Rules, prioritize_expecting};
use crate::fixtures::{mk_bitstream, mk_busy, mk_node, mk_state};
use crate::node_facts::NodeFacts;
use crate::node_state::NodeState;
use crate::rank::ranks;
use crate::requirement::Requirement;
use crate::staleness::Knowledge;
use proptest::prelude::*;

/// Window of the fixtures.
const WINDOW: u64 = 300_000;

fn pod(uid: &str, node: &str) -> PlacedPod {
    PlacedPod { uid: uid.into(), owner: None, node: node.into(), bitstreams: Vec::new() }
}

fn owned(uid: &str, owner: &str, node: &str) -> PlacedPod {
    PlacedPod { owner: Some(owner.into()), ..pod(uid, node) }
}

/// Measured `at` that moment, and received at once.
fn received(state: NodeState, at: u64) -> Received {
    Received::new(state, Millis(at), Millis::ZERO)
}

fn idle() -> Received {
    received(mk_state(), 0)
}

/// Loads in which one pod of `owner` was found to use so much per window.
fn where_a_pod_uses(usage: u64, owner: &str) -> ExpectedLoads {
    let mut all = ExpectedLoads::default();
    all.bound(&owned("old", owner, "elsewhere"), Millis(WINDOW), Millis::ZERO);
    let learnt = all.learnt(|_| Some((Millis(usage), Millis(WINDOW))), Millis::ZERO);
    all.expect(&learnt);
    all
}

#[test]
fn what_a_pod_of_the_same_owner_uses_is_expected_less_and_less_for_one_window() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, Millis(1_000));
    for (now, usage) in [(1_000, 60_000), (76_000, 45_000), (151_000, 30_000), (301_000, 0), (900_000, 0)] {
        assert_eq!(all.on("n", &idle(), Millis(now)).usage, Millis(usage), "at {now}");
    }
    assert_eq!(all.on("other", &idle(), Millis(1_000)), Expected::default());
}

#[test]
fn a_pod_of_a_new_owner_is_like_the_clusters_and_without_any_it_is_unknown() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "new", "n"), Millis::ZERO, Millis::ZERO);
    assert_eq!(all.on("n", &idle(), Millis::ZERO).usage, Millis(60_000));
    all.expect(&Learnt::default());
    let expected = all.on("n", &idle(), Millis::ZERO);
    assert_eq!((expected.usage, expected.unknown), (Millis::ZERO, 1.0));
}

#[test]
fn a_mean_is_of_pods_that_were_there_for_a_window_and_shares_the_nodes_usage() {
    let mut all = ExpectedLoads::default();
    let at = Millis(WINDOW);
    all.bound(&owned("a1", "a", "n1"), Millis::ZERO, Millis::ZERO);
    all.bound(&owned("a2", "a", "n2"), Millis::ZERO, Millis::ZERO);
    all.bound(&owned("b1", "b", "n2"), Millis::ZERO, Millis::ZERO);
    all.bound(&owned("c1", "c", "n1"), Millis::ZERO, Millis(WINDOW / 2));
    all.bound(&owned("d1", "d", "not-fresh"), Millis::ZERO, Millis::ZERO);
    let usage = |node: &str| match node {
        "n1" => Some((Millis(9_000), at)),
        "n2" => Some((Millis(4_000), at)),
        _ => None,
    };
    let learnt = all.learnt(usage, at);
    assert_eq!(learnt.owners(), 2);
    all.expect(&learnt);
    let means = &all.means;
    // n1: 9 s for one pod and half of another; n2: 4 s for two.
    let near = |is: Option<f64>, should: f64| is.is_some_and(|is| (is - should).abs() < 1e-9);
    assert!(near(means.of("a"), (6_000.0 + 2_000.0) / 2.0), "{means:?}");
    assert!(near(means.of("b"), 2_000.0));
    assert!(near(means.of("c"), 10_000.0 / 3.0), "it is like the cluster's: {means:?}");
    assert!(near(means.of("d"), 10_000.0 / 3.0));
}

#[test]
fn a_mean_of_nothing_says_nothing() {
    let mut all = where_a_pod_uses(0, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, Millis::ZERO);
    assert_eq!(all.on("n", &idle(), Millis::ZERO).unknown, 1.0);
}

#[test]
fn what_the_measurement_shows_of_the_pod_itself_is_not_expected_any_more() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, Millis::ZERO);
    let usage = |of: u64| all.on("n", &received(mk_busy(of, 0), 10_000), Millis(10_000)).usage;
    assert_eq!(usage(0), Millis(58_000));
    assert_eq!(usage(1_000), Millis(58_000), "slower than expected: the rest is still to come");
    assert_eq!(usage(40_000), Millis(20_000), "faster: only what is left of e");
    assert_eq!(usage(60_000), Millis::ZERO);
    assert_eq!(usage(90_000), Millis::ZERO);
}

#[test]
fn usage_from_before_a_pod_was_bound_shows_nothing_of_it() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("p", "rs", "n"), Millis::ZERO, Millis(10_000));
    let before = received(mk_busy(90_000, 0), 10_000);
    assert_eq!(all.on("n", &before, Millis(10_000)).usage, Millis(60_000));
}

#[test]
fn usage_is_not_the_pods_while_none_of_its_bitstreams_was_used_since() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let bitstreams = vec!["sobel".parse().unwrap(), "mm".parse().unwrap()];
    all.bound(&PlacedPod { bitstreams, ..owned("p", "rs", "n") }, Millis::ZERO, Millis::ZERO);
    let usage = |bitstreams| {
        let state = NodeState { bitstreams, ..mk_busy(60_000, 0) };
        all.on("n", &received(state, 10_000), Millis(10_000)).usage
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
        all.bound(&owned(uid, "rs", "n"), Millis::ZERO, Millis::ZERO);
    }
    assert_eq!(all.on("n", &received(mk_busy(90_000, 0), 10_000), Millis(10_000)).usage, Millis(3 * 30_000));
}

#[test]
fn a_pod_that_is_gone_is_not_expected_and_one_seen_again_keeps_its_time() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let there = owned("p", "rs", "n");
    all.bound(&there, Millis::ZERO, Millis::ZERO);
    all.bound(&there, Millis::ZERO, Millis(150_000));
    assert_eq!(all.on("n", &idle(), Millis(150_000)).usage, Millis(30_000));
    all.listed(&HashSet::from(["old".to_owned(), "p".to_owned()]));
    assert_eq!(all.on("n", &idle(), Millis(150_000)).usage, Millis(30_000));
    all.listed(&HashSet::from(["old".to_owned()]));
    assert_eq!(all.on("n", &idle(), Millis(150_000)), Expected::default());
    all.gone("old");
    all.expect(&Learnt::default());
    assert_eq!((all.pods(), all.nodes.len(), all.means.owners()), (0, 0, 0));
}

#[test]
fn a_pod_bound_before_it_was_first_seen_is_as_old_as_it_is() {
    let mut all = where_a_pod_uses(60_000, "rs");
    all.bound(&owned("new", "rs", "n"), Millis::ZERO, Millis::ZERO);
    all.bound(&owned("older", "rs", "n"), Millis(WINDOW / 2), Millis::ZERO);
    all.bound(&owned("oldest", "rs", "n"), Millis(WINDOW), Millis::ZERO);
    assert_eq!(all.on("n", &idle(), Millis::ZERO).usage, Millis(90_000));
}

#[test]
fn a_hint_is_split_and_ends_with_the_binding_or_after_five_seconds() {
    let mut all = where_a_pod_uses(60_000, "rs");
    let usage = |all: &ExpectedLoads, node, now| all.on(node, &idle(), Millis(now)).usage.0;
    all.hint("p", Some("rs"), &["n1", "n2"], Millis::ZERO);
    assert_eq!((usage(&all, "n1", 0), usage(&all, "n2", 4_999)), (30_000, 30_000));
    assert_eq!(usage(&all, "n1", 5_000), 0);
    all.hint("p", Some("rs"), &["n2"], Millis(4_000));
    assert_eq!((usage(&all, "n1", 4_000), usage(&all, "n2", 6_000)), (0, 60_000));
    all.bound(&owned("p", "rs", "n1"), Millis::ZERO, Millis(6_000));
    assert_eq!((usage(&all, "n1", 6_000), usage(&all, "n2", 6_000)), (60_000, 0));
    all.hint("p", Some("rs"), &["n2"], Millis(6_000));
    assert_eq!(usage(&all, "n2", 6_000), 0, "it is bound already");
    assert_eq!(all.hints(), 0);
}

#[test]
fn hints_that_nobody_ends_are_forgotten() {
    let mut all = ExpectedLoads::default();
    all.hint("p", None, &["n1", "n2"], Millis::ZERO);
    all.hint("p", None, &["n1"], Millis(3_000));
    all.forget_hints(Millis(6_000));
    assert_eq!(all.hints(), 1, "it was given again meanwhile");
    all.forget_hints(Millis(8_000));
    assert_eq!((all.hints(), all.nodes.len(), all.hinted.len()), (0, 0, 0));
}

#[test]
fn memory_is_bounded() {
    let mut all = ExpectedLoads::default();
    for i in 0..MAX_PODS_PER_NODE {
        assert_eq!(all.bound(&pod(&i.to_string(), "n"), Millis::ZERO, Millis::ZERO), Kept::Yes);
    }
    assert_eq!(all.bound(&pod("one-more", "n"), Millis::ZERO, Millis::ZERO), Kept::NoRoom);
    assert_eq!(all.pods(), MAX_PODS_PER_NODE);
    let nodes: Vec<String> = (0..=MAX_HINTED_NODES).map(|i| i.to_string()).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    all.hint("everywhere", None, &nodes, Millis::ZERO);
    assert_eq!(all.hints(), 0, "a share of nearly nothing");
    all.hint(&"u".repeat(1_000), None, &["n"], Millis::ZERO);
    assert_eq!(all.hints(), 0, "no UID");
    for i in 0..2 * MAX_HINTS {
        all.hint(&format!("h{i}"), None, &["n"], Millis::ZERO);
        all.hint("again-and-again", None, &["n"], Millis::ZERO);
    }
    assert!(all.hints() <= MAX_HINTS && all.hinted.len() <= MAX_HINTS, "{}", all.hinted.len());
}

#[test]
fn an_unknown_pod_costs_one_rank_and_not_more_than_it_must() {
    let measured = [10, 20, 30, 40].map(Millis);
    let with = |unknown: [f64; 4]| {
        loads(&measured, &unknown.map(|unknown| Expected { unknown, ..Expected::default() }))
    };
    assert_eq!(with([0.0; 4]), measured);
    assert_eq!(with([1.0, 0.0, 0.0, 0.0])[0], Millis(21));
    assert_eq!(with([0.6, 0.0, 0.4, 0.0]), [21, 20, 30, 40].map(Millis), "to the nearest whole pod");
    assert_eq!(with([3.0, 2.0, 1.0, 0.0]), [41, 41, 41, 40].map(Millis));
    assert_eq!(with([4.0, 3.0, 2.0, 1.0]), [42; 4].map(Millis), "above all others pods are counted");
    let ties =
        loads(&[Millis(5); 3], &[1.0, 2.0, 0.0].map(|unknown| Expected { unknown, ..Expected::default() }));
    assert_eq!(ties, [6, 7, 5].map(Millis));
}

#[test]
fn an_unknown_pods_own_usage_counts_towards_its_rank() {
    // The node was at 10 before; the pod has brought it to 25 by itself.
    let measured = [25, 20, 30].map(Millis);
    let one = Expected { unknown: 1.0, shown: Millis(15), ..Expected::default() };
    assert_eq!(loads(&measured, &[one, Expected::default(), Expected::default()])[0], Millis(25));
    let two = Expected { unknown: 2.0, ..one };
    assert_eq!(loads(&measured, &[two, Expected::default(), Expected::default()])[0], Millis(31));
}

/// 200 pods at once, bound as soon as decided; ties are broken at random, as kube-scheduler does. Pods per node.
fn burst(nodes: &[NodeFacts], weights: &str, expecting: bool) -> Vec<usize> {
    burst_after(ExpectedLoads::default(), nodes, weights, expecting)
}

/// The same where so much is known before.
fn burst_after(mut all: ExpectedLoads, nodes: &[NodeFacts], weights: &str, expecting: bool) -> Vec<usize> {
    let names: Vec<String> = (0..nodes.len()).map(|i| format!("n{i}")).collect();
    let candidates: Vec<Candidate<'_>> = nodes.iter().map(Some).collect();
    let bitstreams = vec!["sobel".parse().unwrap()];
    let asked = Requirement { bitstreams, ..Requirement::default() };
    let rules = Rules { weights: weights.parse().unwrap(), ..Rules::default() };
    let (mut pods, mut random) = (vec![0; nodes.len()], 1_u64);
    for i in 0..200_u64 {
        let now = Millis(i * 10);
        let on = |(name, node): (&String, &NodeFacts)| match &node.knowledge {
            Knowledge::Known(received) if expecting => all.on(name, received, now),
            _ => Expected::default(),
        };
        let expected: Vec<Expected> = names.iter().zip(nodes).map(on).collect();
        let scored = prioritize_expecting(&asked, &candidates, &expected, &rules, now).nodes;
        let best = scored.iter().map(|node| node.score).max().unwrap();
        let best: Vec<usize> = (0..scored.len()).filter(|index| scored[*index].score == best).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = best[usize::try_from(random >> 33).unwrap() % best.len()];
        pods[chosen] += 1;
        all.bound(&pod(&i.to_string(), &names[chosen]), Millis::ZERO, now);
    }
    pods
}

/// Distinct usages, the least used one has the bitstream.
fn unequal_ground(nodes: u64) -> Vec<NodeFacts> {
    let node = |i: u64| {
        let mut state = mk_busy(i * i * 700 + i * 300, 0);
        state.bitstreams = if i == 0 { vec![mk_bitstream("sobel", 0)] } else { Vec::new() };
        mk_node(state)
    };
    (0..nodes).map(node).collect()
}

#[test]
fn two_hundred_pods_at_once_herd_on_measurements_alone_and_spread_with_what_is_expected() {
    let ground = unequal_ground(10);
    assert_eq!(burst(&ground, "1-2-2", false)[0], 200, "all follow the one that is best");
    let spread = burst(&ground, "1-2-2", true);
    assert!(spread.iter().all(|pods| *pods <= 40), "{spread:?}");
}

#[test]
fn a_cluster_with_a_past_spreads_over_many_nodes_too() {
    // At one rank a pod, 200 pods fill the 20 least used nodes like a staircase, however many there are. What pods of the
    // past used says how much each weighs.
    let ground = unequal_ground(50);
    let mut all = ExpectedLoads::default();
    for i in 0..50 {
        all.bound(&pod(&format!("old{i}"), &format!("n{i}")), Millis(WINDOW), Millis::ZERO);
    }
    let usage = |name: &str| match &ground[name[1..].parse::<usize>().unwrap()].knowledge {
        Knowledge::Known(received) => Some((received.state().usage, Millis(WINDOW))),
        _ => None,
    };
    all.expect(&all.learnt(usage, Millis::ZERO));
    let spread = burst_after(all, &ground, "1-2-2", true);
    assert!(spread.iter().all(|pods| *pods <= 8), "{spread:?}");
    assert!(burst(&ground, "1-2-2", true).iter().filter(|pods| **pods == 0).count() >= 25, "a staircase");
}

#[test]
fn with_so_much_weight_on_locality_nothing_prevents_a_herd() {
    // Expectations move the usage signal only: what weighs more than usage outvotes them, wherever reconfiguration is
    // equal.
    for weights in ["4-2-2", "3-2-2", "1-0-1"] {
        assert_eq!(burst(&unequal_ground(10), weights, true)[0], 200, "{weights}");
    }
    assert!(burst(&unequal_ground(10), "1-1-1", true)[0] > 40);
}

prop_compose! {
    fn any_placed()(
        pods in prop::collection::vec((0..3_u64, 0..400_000_u64, 0..400_000_u64, 0..3_u64), 0..30),
    ) -> Vec<(PlacedPod, Millis, Millis)> {
        let pods = pods.into_iter().enumerate();
        pods.map(|(i, (node, elapsed, seen, owner))| {
            (owned(&i.to_string(), &format!("o{owner}"), &format!("n{node}")), Millis(elapsed), Millis(seen))
        }).collect()
    }
}

proptest! {
    #[test]
    fn no_more_is_expected_than_e_per_pod_and_nothing_after_a_window(
        placed in any_placed(), mean in 1_u64..100_000, usage in 0_u64..100_000, at in 0_u64..500_000, wait in 0_u64..100_000,
    ) {
        let mut all = where_a_pod_uses(mean, "o0");
        let mut on_n0 = 0;
        for (pod, elapsed, seen) in placed {
            on_n0 += u64::from(pod.node == "n0");
            all.bound(&pod, elapsed, seen);
        }
        let state = received(mk_busy(usage, 0), at);
        let now = Millis(at + wait);
        let expected = all.on("n0", &state, now);
        prop_assert!(expected.usage.0 <= mean * on_n0 + 1 && expected.pods <= on_n0 as f64);
        prop_assert_eq!(all.on("n0", &state, Millis(400_000 + WINDOW)), Expected::default());
    }

    #[test]
    fn what_was_reckoned_before_holds_until_something_changes(
        pods in prop::collection::vec((0..WINDOW + 1_000, prop::option::of(0..3_usize), 0..3_u8), 1..12),
        used in prop::collection::vec(0..20_000_u64, 1..30), last_used in 0..WINDOW, known: [bool; 3],
        steps in prop::collection::vec((0..40_000_u64, 0..8_u8), 1..30),
    ) {
        let mut all = ExpectedLoads::default();
        let owners = ["rs-0", "rs-1", "rs-2"];
        let usage = |owner: usize| Millis(10_000 * (owner as u64 + 1));
        let learn = |all: &mut ExpectedLoads, known: [bool; 3]| {
            for (owner, known) in owners.iter().zip(known) {
                let place = format!("settled-{owner}");
                all.gone(&place);
                if known {
                    all.bound(&owned(&place, owner, &place), Millis(WINDOW), Millis::ZERO);
                }
            }
            let place = |name: &str| owners.iter().position(|owner| name == format!("settled-{owner}"));
            let learnt = all.learnt(|name| Some((usage(place(name)?), Millis(WINDOW))), Millis::ZERO);
            all.expect(&learnt);
        };
        learn(&mut all, known);
        for (index, (elapsed, owner, bitstream)) in pods.iter().enumerate() {
            let owner = owner.map(|owner| owners[owner].to_owned());
            let bitstreams = match bitstream {
                0 => Vec::new(),
                1 => vec!["sobel".parse().unwrap()],
                _ => vec!["mm".parse().unwrap()],
            };
            let placed = PlacedPod { owner, bitstreams, ..pod(&format!("p{index}"), "n") };
            all.bound(&placed, Millis(*elapsed), Millis::ZERO);
        }
        let mut state = mk_busy(0, 0);
        state.buckets.usage = used.into_iter().map(Millis).collect();
        state.bitstreams = vec![mk_bitstream("sobel", last_used)];
        let (mut at, mut now) = (0, 0);
        for (step, (passes, event)) in steps.into_iter().enumerate() {
            now += passes;
            match event {
                0 => {
                    state.seq += 1;
                    state.buckets.usage.insert(0, Millis(passes / 3));
                    at = now;
                }
                1 => all.gone(&format!("p{step}")),
                2 => {
                    all.bound(&owned(&format!("new-{step}"), "rs-1", "n"), Millis::ZERO, Millis(now));
                }
                3 => learn(&mut all, [step % 2 == 0, true, step % 3 == 0]),
                _ => {}
            }
            let received = received(state.clone(), at);
            let before = all.on("n", &received, Millis(now));
            if let Some(node) = all.nodes.get_mut("n") {
                node.forget_piece();
            }
            let anew = all.on("n", &received, Millis(now));
            prop_assert!(before.usage.0.abs_diff(anew.usage.0) <= 1, "{before:?} is {anew:?}");
            prop_assert!((before.unknown - anew.unknown).abs() < 1e-6, "{before:?} is {anew:?}");
            prop_assert_eq!((before.shown, before.pods.round()), (anew.shown, anew.pods.round()));
        }
    }

    #[test]
    fn pods_that_came_and_went_leave_nothing(placed in any_placed(), hinted in prop::collection::vec(0..40_u64, 0..20)) {
        let mut all = ExpectedLoads::default();
        for uid in hinted {
            all.hint(&uid.to_string(), None, &["n0", "n2"], Millis(uid * 1_000));
        }
        let uids: Vec<String> = placed.iter().map(|(pod, ..)| pod.uid.clone()).collect();
        for (pod, elapsed, seen) in placed {
            all.bound(&pod, elapsed, seen);
        }
        prop_assert_eq!(all.pods(), uids.len());
        uids.iter().for_each(|uid| all.gone(uid));
        all.forget_hints(Millis(100_000));
        prop_assert_eq!((all.pods(), all.hints(), all.nodes.len(), all.hinted.len()), (0, 0, 0, 0));
    }

    #[test]
    fn an_unknown_pod_more_costs_a_rank_and_never_lowers_a_load(
        measured in prop::collection::vec(0_u64..40, 2..30), unknown in prop::collection::vec(0_u8..6, 30),
        shown in prop::collection::vec(0_u64..20, 30), which in any::<prop::sample::Index>(),
    ) {
        let measured: Vec<Millis> = measured.into_iter().map(Millis).collect();
        let which = which.index(measured.len());
        let expected = |more: f64| -> Vec<Expected> {
            (0..measured.len()).map(|i| Expected {
                unknown: f64::from(unknown[i]) + if i == which { more } else { 0.0 },
                shown: Millis(shown[i]),
                ..Expected::default()
            }).collect()
        };
        let (before, after) = (loads(&measured, &expected(0.0)), loads(&measured, &expected(1.0)));
        prop_assert!(before.iter().zip(&measured).all(|(load, measured)| load >= measured));
        for (i, (before, after)) in before.iter().zip(&after).enumerate() {
            let fine = if i == which { after >= before } else { after == before };
            prop_assert!(fine, "{i}: {before} became {after}");
        }
        // Alone, without anything shown: above as many others as it has pods, as far as there are others above it.
        let pods = unknown[which] + 1;
        let alone: Vec<Expected> = (0..measured.len())
            .map(|i| Expected { unknown: if i == which { pods.into() } else { 0.0 }, ..Expected::default() })
            .collect();
        let load = loads(&measured, &alone)[which];
        let others = || measured.iter().enumerate().filter(|(i, _)| *i != which).map(|(_, load)| *load);
        let not_below = others().filter(|other| *other >= measured[which]).count();
        let passed = others().filter(|other| *other >= measured[which] && *other < load).count();
        prop_assert!(passed >= not_below.min(pods.into()), "{load} passes {passed} of {not_below}");
        if not_below > 0 {
            let mut raised = measured.clone();
            raised[which] = load;
            let rank = |loads: &[Millis]| ranks(&loads.iter().map(|load| load.0).collect::<Vec<_>>())[which];
            prop_assert!(rank(&raised) < rank(&measured));
        }
    }
}

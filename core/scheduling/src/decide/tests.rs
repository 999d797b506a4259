mod per_slot;

use super::*;
use crate::fixtures::{mk_asked, mk_bitstream, mk_busy, mk_device, mk_node, mk_plugin, mk_state};
use crate::moved_off::MovedOffAnnotation;
use crate::node_facts::NodeFacts;
use crate::node_labels::NodeLabels;
use crate::node_state::{NodeState, controller};
use crate::staleness::{Knowledge, StalePolicy};
use crate::units::{Moment, WallTime};
use proptest::prelude::*;

fn asked(bitstreams: &[&str]) -> Requirement {
    Requirement { vendor: Some("intel".into()), ..mk_asked(bitstreams) }
}

fn labelled(vendor: &str) -> NodeFacts {
    let labels = NodeLabels { vendor: Some(vendor.into()), ..NodeLabels::default() };
    NodeFacts { labels, ..NodeFacts::default() }
}

fn with_sobel(usage: u64, reconfiguration: u64) -> NodeFacts {
    let mut state = mk_busy(usage, reconfiguration);
    state.bitstreams = vec![mk_bitstream("sobel", 0)];
    mk_node(state)
}

fn scores(nodes: &[&NodeFacts], rules: &DecisionRules) -> Vec<u32> {
    let candidates: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
    let decision = prioritize(&asked(&["sobel"]), &candidates, rules, MonotonicTime::START);
    decision.scores().to_vec()
}

fn rules(weights: &str) -> DecisionRules {
    DecisionRules { weights: weights.parse().unwrap(), ..DecisionRules::default() }
}

fn all(policy: StalePolicy) -> StalePolicies {
    StalePolicies::default().map(|_| policy)
}

/// The moment at which states of the fixtures are older than three of their heartbeats.
const LATE: MonotonicTime = MonotonicTime(180_001);

#[test]
fn the_papers_formula_with_the_papers_weights() {
    let nodes = [&with_sobel(300, 0), &mk_node(mk_busy(100, 20)), &mk_node(mk_busy(200, 10))];
    // usage ranks 1/3, 1, 2/3; reconfiguration ranks 1, 1/3, 2/3; locality 1, 0, 0
    assert_eq!(scores(&nodes, &rules("1-2-2")), [7, 5, 5]);
    assert_eq!(scores(&nodes, &rules("0-1-0")), [3, 10, 7]);
    assert_eq!(scores(&nodes, &rules("0-0-1")), [10, 3, 7]);
    assert_eq!(scores(&nodes, &rules("1-0-0")), [10, 0, 0]);
    assert_eq!(scores(&nodes, &rules("0-0-0")), [0, 0, 0]);
}

/// A node with one board that holds `loaded` bitstreams, sobel first, and has `queued` waiting tasks.
fn with_slots(loaded: u32, queued: u32) -> NodeFacts {
    let mut state = mk_busy(0, 0);
    state.bitstreams = ["sobel", "mm", "aes", "fft"].map(|name| mk_bitstream(name, 0)).to_vec();
    state.devices[0].loaded = (0..loaded).collect();
    state.devices[0].queued = queued;
    mk_node(state)
}

#[test]
fn further_signals_rank_as_the_papers_do() {
    let nodes = [&with_slots(4, 0), &with_slots(1, 7), &with_slots(1, 2), &with_slots(0, 7)];
    // Free slots 0, 3, 3, 4; the greatest value ranks first: 1/4, 3/4, 3/4, 1.
    assert_eq!(scores(&nodes, &rules("0-0-0-1-0-0")), [3, 8, 8, 10]);
    // Waiting tasks 0, 7, 2, 7: ranks 1, 2/4, 3/4, 2/4.
    assert_eq!(scores(&nodes, &rules("0-0-0-0-1-0")), [10, 5, 8, 5]);
    // Sobel is in a slot of the first three nodes; all four used it recently.
    assert_eq!(scores(&nodes, &rules("0-0-0-0-0-1")), [10, 10, 10, 0]);
    assert_eq!(scores(&nodes, &rules("1-0-0-0-0-0")), [10, 10, 10, 10]);
    // All three: (1/4 + 1 + 1) / 3, (3/4 + 1/2 + 1) / 3, (3/4 + 3/4 + 1) / 3, (1 + 1/2 + 0) / 3.
    assert_eq!(scores(&nodes, &rules("0-0-0-1-1-1")), [8, 8, 8, 5]);
    // No node is busy: by the paper's signals all are equal.
    assert_eq!(scores(&nodes, &rules("1-2-2")), [10, 10, 10, 10]);
}

#[test]
fn stale_policies_set_the_value_of_further_signals_of_a_node_without_fresh_state() {
    let (fresh, absent) = (with_slots(1, 1), labelled("intel"));
    let stale = StalePolicies { queue: StalePolicy::Neutral, ..StalePolicies::default() };
    let by = |weights| scores(&[&fresh, &absent], &DecisionRules { stale, ..rules(weights) });
    assert_eq!((by("0-0-0-0-1-0"), by("0-0-0-1-0-0")), (vec![10, 5], vec![10, 0]));
}

#[test]
fn a_score_decision_reports_every_term_of_a_score() {
    let (busy, absent) = (with_sobel(300, 7), labelled("intel"));
    let decision = prioritize(
        &asked(&["sobel"]),
        &[Some(busy.known()), Some(absent.known())],
        &DecisionRules::default(),
        MonotonicTime(5_000),
    );
    let node = decision.nodes()[0];
    assert_eq!(node.terms.locality, Term { value: 1.0, basis: Basis::Measured });
    assert_eq!(
        node.measured,
        Some(MeasuredBoards {
            usage: Millis(300),
            reconfiguration: Millis(7),
            slots: 4,
            now: BoardsNow { free_slots: 4, queued: 0 },
            age: Millis(5_000)
        })
    );
    assert_eq!(node.terms.queue, Term { value: 0.0, basis: Basis::Unweighted });
    assert_eq!(decision.nodes()[1].terms.usage, Term { value: 0.0, basis: Basis::Penalised });
    assert_eq!((decision.nodes()[1].freshness, decision.nodes()[1].measured), (Freshness::Absent, None));
}

#[test]
fn nodes_without_fresh_state_are_not_counted_in_ranks() {
    let (idle, busy, absent) = (mk_node(mk_busy(1, 0)), mk_node(mk_busy(2, 0)), labelled("intel"));
    assert_eq!(scores(&[&idle, &busy, &absent], &rules("0-1-0")), [10, 5, 0]);
    assert_eq!(scores(&[&idle, &busy], &rules("0-1-0")), [10, 5]);
}

#[test]
fn a_node_without_fresh_state_never_looks_best() {
    let (busy, absent) = (mk_node(mk_busy(9, 9)), labelled("intel"));
    let neutral = DecisionRules { stale: all(StalePolicy::Neutral), ..rules("1-0-0") };
    let decision = prioritize(
        &asked(&["sobel"]),
        &[Some(busy.known()), Some(absent.known()), None],
        &neutral,
        MonotonicTime::START,
    );
    assert_eq!(decision.nodes().iter().map(|node| node.score).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(decision.nodes()[1].capped, Capped::Yes);
    let unreadable = NodeFacts { knowledge: Knowledge::Unreadable, ..labelled("intel") };
    assert_eq!(
        scores(&[&busy, &unreadable], &DecisionRules { weights: Weights::default(), ..neutral }),
        [8, 5]
    );
}

#[test]
fn the_stale_policy_sets_the_value_of_a_stale_state() {
    let (node, other) = (with_sobel(0, 0), labelled("intel"));
    let candidates = [Some(node.known()), Some(other.known())];
    for (policy, score, verdict) in [
        (StalePolicy::Neutral, 5, Ok(())),
        (StalePolicy::Penalise, 0, Ok(())),
        (StalePolicy::Exclude, 0, Err(Rejection::NotFresh)),
    ] {
        let rules = DecisionRules { stale: all(policy), ..DecisionRules::default() };
        let decision = prioritize(&asked(&["sobel"]), &candidates, &rules, LATE);
        assert_eq!(decision.nodes().iter().map(|node| node.score).collect::<Vec<_>>(), [score, score]);
        assert_eq!(decision.nodes()[0].freshness, Freshness::Stale);
        assert_eq!(filter(&asked(&[]), &candidates, &rules, LATE).verdicts, [verdict, verdict]);
    }
}

#[test]
fn a_stale_policy_applies_to_its_signal_only() {
    let node = with_sobel(0, 0);
    let stale = StalePolicies { locality: StalePolicy::Neutral, ..StalePolicies::default() };
    let decision = prioritize(
        &asked(&[]),
        &[Some(node.known())],
        &DecisionRules { stale, ..DecisionRules::default() },
        LATE,
    );
    let terms = decision.nodes()[0].terms;
    assert_eq!((terms.locality.basis, terms.usage.basis), (Basis::Neutral, Basis::Penalised));
}

#[test]
fn the_filter_still_reads_the_boards_of_a_stale_state() {
    let node = mk_node(mk_busy(0, 0));
    let xilinx = Requirement { vendor: Some("xilinx".into()), ..asked(&[]) };
    assert_eq!(
        filter(&asked(&[]), &[Some(node.known())], &DecisionRules::default(), LATE).verdicts,
        [Ok(())]
    );
    assert_eq!(
        filter(&xilinx, &[Some(node.known())], &DecisionRules::default(), LATE).verdicts,
        [Err(Rejection::Vendor)]
    );
}

#[test]
fn a_node_never_seen_is_rejected_unless_unlabelled_ones_pass() {
    assert_eq!(
        filter(&asked(&[]), &[None], &DecisionRules::default(), LATE).verdicts,
        [Err(Rejection::UnknownNode)]
    );
    let pass = DecisionRules { unlabelled: UnlabelledNodes::Pass, ..DecisionRules::default() };
    assert_eq!(filter(&asked(&[]), &[None], &pass, LATE).verdicts, [Ok(())]);
}

prop_compose! {
    fn any_node()(kind in 0..6, usage in 0_u64..50, reconfiguration in 0_u64..50, sobel: bool) -> NodeFacts {
        match kind {
            0 => labelled("intel"),
            1 => NodeFacts { knowledge: Knowledge::Unreadable, ..labelled("intel") },
            2 | 3 => with_slots(u32::try_from(usage % 5).unwrap(), u32::try_from(reconfiguration % 9).unwrap()),
            _ if sobel => with_sobel(usage, reconfiguration),
            _ => mk_node(mk_busy(usage, reconfiguration)),
        }
    }
}

fn any_policy() -> impl Strategy<Value = StalePolicy> {
    prop_oneof![Just(StalePolicy::Neutral), Just(StalePolicy::Penalise), Just(StalePolicy::Exclude)]
}

prop_compose! {
    fn any_rules()(
        weights in [0_u8..5, 0_u8..5, 0_u8..5, 0_u8..5, 0_u8..5, 0_u8..5], max_score in 1_u32..200,
        stale in (any_policy(), any_policy(), any_policy()),
    ) -> DecisionRules {
        DecisionRules {
            weights: weights.map(|weight| weight.to_string()).join("-").parse().unwrap(),
            max_score: max_score.to_string().parse().unwrap(),
            stale: StalePolicies { locality: stale.0, usage: stale.1, queue: stale.2, ..StalePolicies::default() },
            unlabelled: UnlabelledNodes::Reject,
            anti_herd: AntiHerd::On,
        }
    }
}

proptest! {
    #[test]
    fn scores_are_on_the_scale_and_the_best_has_fresh_state(
        nodes in prop::collection::vec(any_node(), 0..20), rules in any_rules(),
    ) {
        let candidates: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
        let decision = prioritize(&asked(&["sobel"]), &candidates, &rules, MonotonicTime::START);
        prop_assert_eq!(decision.nodes().len(), nodes.len());
        let best = |fresh: bool| {
            decision.nodes().iter().filter(|node| node.measured.is_some() == fresh).map(|node| node.score).max()
        };
        prop_assert!(decision.nodes().iter().all(|node| node.score <= rules.max_score.get()));
        for node in decision.nodes().iter().filter(|node| node.capped == Capped::No) {
            let exact = f64::from(node.mean) * f64::from(rules.max_score.get());
            prop_assert!((f64::from(node.score) - exact).abs() < 0.501, "not the mean of the terms: {node:?}");
        }
        if let (Some(fresh), Some(unfresh)) = (best(true), best(false)) {
            prop_assert!(unfresh < fresh || fresh == 0);
        }
    }

    #[test]
    fn the_order_of_the_request_does_not_matter(
        nodes in prop::collection::vec(any_node(), 0..20), rules in any_rules(),
    ) {
        let forward: Vec<_> = nodes.iter().map(|node| Some(node.known())).collect();
        let backward: Vec<_> = nodes.iter().rev().map(|node| Some(node.known())).collect();
        let mut reversed = prioritize(&asked(&["sobel"]), &backward, &rules, MonotonicTime::START).nodes();
        reversed.reverse();
        prop_assert_eq!(prioritize(&asked(&["sobel"]), &forward, &rules, MonotonicTime::START).nodes(), reversed);
    }

    #[test]
    fn more_free_slots_and_a_shorter_queue_are_never_worse(
        nodes in prop::collection::vec(any_node(), 1..20), slots in 0_u32..4, queued in 0_u32..9,
    ) {
        let score = |loaded, queued, rules: &DecisionRules| {
            let own = with_slots(loaded, queued);
            let nodes: Vec<_> = nodes.iter().chain([&own]).collect();
            *scores(&nodes, rules).last().unwrap()
        };
        let (by_slots, by_queue) = (rules("0-0-0-1-0-0"), rules("0-0-0-0-1-0"));
        prop_assert!(score(slots, 0, &by_slots) >= score(slots + 1, 0, &by_slots));
        prop_assert!(score(0, queued, &by_queue) >= score(0, queued + 1, &by_queue));
    }

    #[test]
    fn less_usage_is_never_worse(
        nodes in prop::collection::vec(any_node(), 1..20), usage in 0_u64..50, weights in (0_u8..5, 0_u8..5, 0_u8..5),
    ) {
        let weights = Weights::new(weights.0.into(), weights.1.into(), weights.2.into()).unwrap();
        let rules = DecisionRules { weights, ..DecisionRules::default() };
        let score = |usage| {
            let own = mk_node(mk_busy(usage, 5));
            let candidates: Vec<_> = nodes.iter().chain([&own]).map(|node| Some(node.known())).collect();
            prioritize(&asked(&["sobel"]), &candidates, &rules, MonotonicTime::START).nodes().last().unwrap().score
        };
        prop_assert!(score(usage) >= score(usage + 10));
    }
}

#[test]
fn pods_of_a_controller_whose_pods_the_node_plugin_could_not_serve_are_kept_off() {
    let mut plugin = mk_plugin(&[("dm0", 0, 16)]);
    plugin.report.kept_off = [controller("shop", "rs-1")].into();
    let devices = vec![mk_device("intel", "a10", "1")];
    let node = mk_node(NodeState { devices, plugin: Some(plugin), ..mk_state() });
    let verdicts = |of: Option<&str>| {
        filter_for(of, &asked(&[]), &[Some(node.known())], &DecisionRules::default(), LATE).verdicts
    };
    assert_eq!(verdicts(Some(&controller("shop", "rs-1"))), [Err(Rejection::KeptOff)]);
    assert_eq!((verdicts(Some("mill/rs-1")), verdicts(None)), (vec![Ok(())], vec![Ok(())]));
}

#[test]
fn pods_of_a_workload_that_was_moved_off_a_node_are_kept_off_until_the_time_is_over() {
    let annotation = MovedOffAnnotation::default();
    let annotation = annotation.with(controller("shop", "rs-1"), WallTime(1_100), WallTime(1_000)).unwrap();
    let at = Moment { now: MonotonicTime(500), wall: WallTime(1_000) };
    let devices = vec![mk_device("intel", "a10", "1")];
    let node = NodeFacts { moved_off: annotation.at(at), ..mk_node(NodeState { devices, ..mk_state() }) };
    let verdicts = |of: Option<&str>, now: u64| {
        let rules = DecisionRules::default();
        filter_for(of, &asked(&[]), &[Some(node.known())], &rules, MonotonicTime(now)).verdicts
    };
    assert_eq!(verdicts(Some(&controller("shop", "rs-1")), 599), [Err(Rejection::MovedOff)]);
    assert_eq!(verdicts(Some(&controller("shop", "rs-1")), 600), [Ok(())]);
    assert_eq!((verdicts(Some("mill/rs-1"), 500), verdicts(None, 500)), (vec![Ok(())], vec![Ok(())]));
}

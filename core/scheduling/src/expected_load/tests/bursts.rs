//! Bursts: whether many pods at the same time go to one node.

use super::*;
use crate::decide::{Candidate, DecisionRules, prioritize_expecting};
use crate::fixtures::mk_node;
use crate::node_facts::NodeFacts;
use crate::requirement::Requirement;
use crate::staleness::Knowledge;

/// Places 200 pods at the same time, each bound as soon as decided. Ties are broken at random, as in kube-scheduler.
/// Returns the number of pods per node.
fn burst(nodes: &[NodeFacts], weights: &str, expecting: bool) -> Vec<usize> {
    burst_after(ExpectedLoads::default(), nodes, weights, expecting)
}

/// Like [`burst`], with expectations learnt before.
fn burst_after(mut all: ExpectedLoads, nodes: &[NodeFacts], weights: &str, expecting: bool) -> Vec<usize> {
    let names: Vec<String> = (0..nodes.len()).map(|i| format!("n{i}")).collect();
    let candidates: Vec<Candidate<'_>> = nodes.iter().map(|node| Some(node.known())).collect();
    let bitstreams = vec!["sobel".parse().unwrap()];
    let asked = Requirement { bitstreams, ..Requirement::default() };
    let rules = DecisionRules { weights: weights.parse().unwrap(), ..DecisionRules::default() };
    let (mut pods, mut random) = (vec![0; nodes.len()], 1_u64);
    for i in 0..200_u64 {
        let now = MonotonicTime(i * 10);
        let on = |(name, node): (&String, &NodeFacts)| match &node.knowledge {
            Knowledge::Known(received) if expecting => all.on(name, received, &AskedKind::ANY, now),
            _ => Expected::default(),
        };
        let expected: Vec<Expected> = names.iter().zip(nodes).map(on).collect();
        let scored = prioritize_expecting(&asked, &candidates, &expected, &rules, now).nodes();
        let best = scored.iter().map(|node| node.score).max().unwrap();
        let best: Vec<usize> = (0..scored.len()).filter(|index| scored[*index].score == best).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = best[usize::try_from(random >> 33).unwrap() % best.len()];
        pods[chosen] += 1;
        all.bound(&pod(&i.to_string(), &names[chosen]), Millis::ZERO, now);
    }
    pods
}

/// Nodes with distinct usage, of which the least used one has the bitstream.
fn unequal_ground(nodes: u64) -> Vec<NodeFacts> {
    let node = |i: u64| {
        let mut state = mk_busy(i * i * 700 + i * 300, 0);
        state.bitstreams = if i == 0 { vec![mk_bitstream("sobel", 0)] } else { Vec::new() };
        mk_node(state)
    };
    (0..nodes).map(node).collect()
}

#[test]
fn two_hundred_pods_at_once_herd_by_measurements_alone_and_spread_with_expectations() {
    let ground = unequal_ground(10);
    assert_eq!(burst(&ground, "1-2-2", false)[0], 200, "all follow the one that is best");
    let spread = burst(&ground, "1-2-2", true);
    assert!(spread.iter().all(|pods| *pods <= 40), "{spread:?}");
}

#[test]
fn pods_spread_over_many_nodes_if_means_are_known() {
    // At one rank per pod, 200 pods fill the 20 least used nodes like a staircase, however many nodes there are. With
    // learnt means each pod adds its usage instead.
    let ground = unequal_ground(50);
    let mut all = ExpectedLoads::default();
    for i in 0..50 {
        all.bound(&pod(&format!("old{i}"), &format!("n{i}")), Millis(WINDOW), MonotonicTime::START);
    }
    let state =
        |name: &str| ground[name[1..].parse::<usize>().unwrap()].knowledge.fresh(MonotonicTime::START);
    all.expect(&all.learnt(state, MonotonicTime::START));
    let spread = burst_after(all, &ground, "1-2-2", true);
    assert!(spread.iter().all(|pods| *pods <= 8), "{spread:?}");
    assert!(burst(&ground, "1-2-2", true).iter().filter(|pods| **pods == 0).count() >= 25, "a staircase");
}

#[test]
fn too_much_weight_on_locality_causes_a_herd_despite_expectations() {
    // Expectations change the usage signal only. A signal with more weight outvotes it where reconfiguration is equal.
    for weights in ["4-2-2", "3-2-2", "1-0-1"] {
        assert_eq!(burst(&unequal_ground(10), weights, true)[0], 200, "{weights}");
    }
    assert!(burst(&unequal_ground(10), "1-1-1", true)[0] > 40);
}

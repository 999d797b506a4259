//! Time to read the expected load of 5,000 nodes with ten pods each: with new states of all nodes, and after time
//! alone has passed.
#![allow(clippy::unwrap_used, reason = "a benchmark that can't run should say so and end")]

use fpga_core::expected_load::{ExpectedLoads, PlacedPod};
use fpga_core::node_state::{NodeState, decode};
use fpga_core::signals::AskedKind;
use fpga_core::staleness::Received;
use fpga_core::units::{Millis, MonotonicTime};
use std::time::{Duration, Instant};

const NODES: u64 = 5_000;
const PODS_PER_NODE: u64 = 10;
const WINDOW: u64 = 300_000;

fn main() {
    // `cargo test` runs benches as well, with few rounds.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 300 } else { 2 };
    let mut all = ExpectedLoads::default();
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node:05}.zone.example.internal")).collect();
    for index in 0..NODES * PODS_PER_NODE {
        let bound_ago = Millis(if index.is_multiple_of(2) { 600_000 } else { (index * 7_919) % WINDOW });
        let pod = PlacedPod {
            uid: format!("8f4b1c5e-3d2a-4f6b-9c8d-{index:012}"),
            owner: Some(format!("0d9e8f7a-6b5c-4d3e-8f2a-{:012}", index % 500)),
            node: names[usize::try_from(index % NODES).unwrap()].clone(),
            kind: AskedKind::ANY,
            bitstreams: vec![format!("accelerator-{}", index % 50).parse().unwrap()],
        };
        all.bound(&pod, bound_ago, MonotonicTime::START);
    }
    let settled = Received::new(state(0, 0), MonotonicTime::START, Millis::ZERO);
    let learnt = all.learnt(|_| Some(&settled), MonotonicTime::START);
    all.expect(&learnt);

    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let now = MonotonicTime(round * 20);
        let received: Vec<Received> =
            (0..NODES).map(|node| Received::new(state(node, round), now, Millis::ZERO)).collect();
        changed.push(ask(&all, &names, &received, now));
        unchanged.push(ask(&all, &names, &received, now + Millis(5)));
    }
    println!("expected load of {NODES} nodes with {PODS_PER_NODE} pods each, microseconds, {rounds} rounds");
    for (what, times) in [("all states new", &mut changed), ("only time passed", &mut unchanged)] {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_micros();
        println!("{what:<18} min {:>6}  p50 {:>6}", at(0), at(50));
    }
}

fn ask(all: &ExpectedLoads, names: &[String], received: &[Received], now: MonotonicTime) -> Duration {
    let started = Instant::now();
    let pods: f64 = names
        .iter()
        .zip(received)
        .map(|(name, received)| all.on(name, received, &AskedKind::ANY, now).pods)
        .sum();
    let took = started.elapsed();
    assert!(pods > 0.0);
    took
}

fn state(node: u64, round: u64) -> NodeState {
    let usage: Vec<_> = (0..30).map(|slice| (node * 31 + round + slice * 7_919) % 40_000).collect();
    let bitstreams: Vec<_> = (0..8)
        .map(|slot| serde_json::json!({"name": format!("accelerator-{}", (node + slot) % 50), "lastUsedAgoMs": slot * 1_000}))
        .collect();
    let text = serde_json::json!({
        "v": 1, "boot": 1, "seq": round, "heartbeatMs": 60_000, "measuredAtMs": 1, "windowMs": WINDOW, "usageMs": 1,
        "reconfigurationMs": 0, "bitstreams": bitstreams, "window": {"bucketMs": 10_000, "usageMs": usage},
    });
    decode(&text.to_string()).unwrap()
}

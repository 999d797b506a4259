//! A cluster of nodes with different states, and requests about them.

use axum::body::Bytes;
use fpga_core::decide::DecisionRules;
use fpga_core::expected_load::PlacedPod;
use fpga_core::signals::AskedKind;
use fpga_core::units::{Millis, MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::wire::Mode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Number of FPGA pods on each node.
const PODS_PER_NODE: usize = 10;

fn name(index: usize) -> String {
    format!("node-{index:05}.zone-{}.example.internal", index % 3)
}

/// A cluster of `nodes` nodes. Every node has a different state, with the bitstreams of two boards and 30 slices.
pub fn cluster(nodes: usize) -> Arc<App> {
    let started = Instant::now();
    let now =
        move || Moment { now: MonotonicTime::after(started.elapsed()), wall: WallTime(1_760_000_000_000) };
    let state = Arc::new(App::new(DecisionRules::default(), Clock::new(now)));
    for index in 0..nodes {
        let mut node = ObjectMeta { name: Some(name(index)), ..ObjectMeta::default() };
        state.index.apply(node.clone(), Shown::Listed, state.clock.read());
        node.annotations = Some([("fpga-scheduling.io/node-state".to_owned(), node_state(index))].into());
        state.index.apply(node, Shown::Changed, state.clock.read());
    }
    state.index.listed(&(0..nodes).map(name).collect::<HashSet<_>>());
    for index in 0..nodes * PODS_PER_NODE {
        // Half of the pods are older than a window; the others still add expected usage.
        let bound_ago =
            Millis(if index.is_multiple_of(2) { 600_000 } else { (index as u64 * 7_919) % 300_000 });
        let pod = PlacedPod {
            uid: format!("8f4b1c5e-3d2a-4f6b-9c8d-{index:012}"),
            owner: Some(format!("0d9e8f7a-6b5c-4d3e-8f2a-{:012}", index % 500)),
            node: name(index % nodes),
            kind: AskedKind::ANY,
            bitstreams: vec![format!("accelerator-{}", index % 50).parse().unwrap()],
        };
        state.expectations.bound(&pod, bound_ago, state.clock.read().now);
    }
    state.expectations.learn(&state.index, state.clock.read().now);
    state
}

fn node_state(index: usize) -> String {
    let usage: Vec<_> = (0..30).map(|slice| (index * 31 + slice * 7_919) % 40_000).collect();
    let reconfiguration: Vec<_> = (0..30).map(|slice| (index * 17 + slice * 104_729) % 900).collect();
    let bitstreams: Vec<_> = (0..8)
        .map(|slot| {
            let kind = (index + slot) % 50;
            serde_json::json!({"name": format!("accelerator-{kind}"), "digest": format!("{kind:032x}"), "lastUsedAgoMs": slot * 1_000})
        })
        .collect();
    let device = |id: &str, loaded: [u32; 4]| {
        serde_json::json!({"id": id, "vendor": "intel", "platform": "Intel FPGA", "board": "a10", "shell": "1.2", "slots": 4,
            "loaded": loaded, "usageMs": 1, "reconfigurationMs": 1, "queued": 0, "healthy": true})
    };
    serde_json::json!({
        "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 3_600_000, "measuredAtMs": 1, "windowMs": 300_000,
        "usageMs": usage.iter().sum::<usize>(), "reconfigurationMs": reconfiguration.iter().sum::<usize>(),
        "devices": [device("dm0", [0, 1, 2, 3]), device("dm1", [4, 5, 6, 7])], "bitstreams": bitstreams,
        "window": {"bucketMs": 10_000, "usageMs": usage, "reconfigurationMs": reconfiguration},
    })
    .to_string()
}

/// Factors that have no divisor in common with a number of nodes: multiples of them visit all nodes in another order.
const ORDERS: [usize; 8] = [1, 3, 7, 11, 13, 17, 19, 23];

/// Requests as of [`request`] with the nodes in other orders: kube-scheduler's own filters run in parallel, so the order of
/// the nodes that pass them changes.
pub fn requests(nodes: usize, size: usize) -> Vec<Bytes> {
    ORDERS.into_iter().map(|factor| request_in_order(nodes, size, Mode::Names, factor)).collect()
}

/// A request with a pod of a real API server that asks for two bitstreams, and `size` nodes as names or whole.
pub fn request(nodes: usize, size: usize, mode: Mode) -> Bytes {
    request_in_order(nodes, size, mode, 1)
}

fn request_in_order(nodes: usize, size: usize, mode: Mode, factor: usize) -> Bytes {
    let recorded = include_str!("../../tests/fixtures/filter.node-names.json");
    let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
    let mut pod = recorded["request"]["Pod"].clone();
    pod["metadata"]["annotations"]["fpga-scheduling.io/bitstreams"] = "accelerator-7,accelerator-30".into();
    let names = (0..size).map(|index| name(index * factor % size * (nodes / size)));
    let list = |items: Vec<String>| items.join(",");
    let nodes = match mode {
        Mode::Names => {
            let names = list(names.map(|name| format!(r#""{name}""#)).collect());
            format!(r#""Nodes":null,"NodeNames":[{names}]"#)
        }
        Mode::Full => {
            let items = list(names.map(|name| whole_node(&name)).collect());
            format!(r#""Nodes":{{"metadata":{{}},"items":[{items}]}},"NodeNames":null"#)
        }
    };
    format!("{{\"Pod\":{pod},{nodes}}}\n").into()
}

/// A recorded node, with images and managed fields as in a real node of 6 KB.
fn whole_node(name: &str) -> String {
    let recorded = include_str!("../../tests/fixtures/filter.full-nodes.json");
    let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
    let mut node = recorded["request"]["Nodes"]["items"][0].clone();
    let image = |index| serde_json::json!({"names": [format!("registry.example/team/image-{index}@sha256:{index:064}")], "sizeBytes": 123_456_789});
    node["status"]["images"] = (0..32).map(image).collect();
    let mut metadata = node["metadata"].take();
    metadata.as_object_mut().unwrap().remove("name");
    // Go writes the name first, and these keys in this order.
    let metadata = metadata.to_string().replacen('{', &format!(r#"{{"name":"{name}","#), 1);
    format!(r#"{{"metadata":{metadata},"spec":{},"status":{}}}"#, node["spec"], node["status"])
}

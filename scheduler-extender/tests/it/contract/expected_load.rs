//! The expected load of pods, from the decision on.

use super::{ask, get, node_state, service_at, show};
use axum::Router;
use axum::http::StatusCode;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::expected_load::PlacedPod;
use fpga_core::signals::AskedKind;
use fpga_core::units::{Millis, MonotonicTime};
use fpga_scheduler_extender::app::App;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Three nodes that are scored by usage, and a function that makes a request for the pod with a given UID.
fn uneven_cluster(rules: DecisionRules, now: Arc<AtomicU64>) -> (Router, Arc<App>, impl Fn(&str) -> Value) {
    let (router, state) = service_at(rules, now);
    for (name, usage) in [("a", 1_000), ("b", 2_000), ("c", 9_000)] {
        show(&state, name, &[], Some(&node_state("intel", usage, "sobel")));
    }
    state.index.listed(&HashSet::from(["a", "b", "c"].map(str::to_owned)));
    let request = |uid: &str| {
        let metadata = json!({"name": uid, "namespace": "d", "uid": uid,
            "annotations": {"fpga-scheduling.io/bitstreams": "sobel"},
            "ownerReferences": [{"uid": "rs", "controller": true}]});
        json!({"Pod": {"metadata": metadata}, "NodeNames": ["a", "b", "c"]})
    };
    (router, state, request)
}

fn placed(uid: &str, node: &str) -> PlacedPod {
    let (uid, node) = (uid.to_owned(), node.to_owned());
    PlacedPod { uid, owner: Some("rs".into()), node, kind: AskedKind::ANY, bitstreams: Vec::new() }
}

/// The watch sees pods with these UIDs that wait for a node.
fn waiting(state: &App, uids: &[&str]) {
    for uid in uids {
        state.expectations.waits(uid, state.clock.read().now);
    }
}

fn scores_of(answer: &Value) -> Vec<u64> {
    answer.as_array().unwrap().iter().map(|node| node["Score"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_decision_counts_until_it_is_seen_bound_and_then_where_it_is() {
    let now = Arc::new(AtomicU64::new(10_000));
    let rules = DecisionRules { weights: "0-1-0".parse().unwrap(), ..DecisionRules::default() };
    let (router, state, request) = uneven_cluster(rules, Arc::clone(&now));
    waiting(&state, &["p1", "p2", "p3", "p4"]);
    let (measured, one_on_a, one_on_b) = (vec![10, 7, 3], vec![7, 10, 3], vec![10, 3, 7]);
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p1")).await), measured);
    // The pod is expected on a before its binding is seen, so that another node is best for the next pod.
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p2")).await), one_on_a);
    // Neither pod is seen bound. After five seconds they are not expected any more.
    now.store(15_000, Ordering::Relaxed);
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p3")).await), measured);
    // The third pod is seen bound, to another node than expected.
    state.expectations.bound(&placed("p3", "b"), Millis::ZERO, MonotonicTime(15_000));
    now.store(21_000, Ordering::Relaxed);
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p4")).await), one_on_b);

    let (_, body) = get(&router, "/explain/d/p4").await;
    let explained: Value = serde_json::from_str(&body).unwrap();
    let of_b = &explained["prioritize"]["nodes"][1];
    assert_eq!(of_b["measured"]["usageMs"], 2_000, "{of_b}");
    // The expected usage raises b to the usage of c.
    assert_eq!(of_b["expected"], json!({"usageMs": 7_000, "pods": 1.0}));
    assert_eq!(explained["prioritize"]["nodes"][2].get("expected"), None);
    assert_eq!(explained["rules"]["anti_herd"], "on");
    let metrics = get(&router, "/metrics").await.1;
    for line in ["fpga_extender_placed_pods 1", "fpga_extender_awaited_bindings 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_pod_that_is_tried_again_is_not_charged_for_its_own_decision() {
    let rules = DecisionRules { weights: "0-1-0".parse().unwrap(), ..DecisionRules::default() };
    let (router, state, request) = uneven_cluster(rules, Arc::new(AtomicU64::new(10_000)));
    waiting(&state, &["p1"]);
    for _ in 0..3 {
        assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p1")).await), [10, 7, 3]);
    }
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p2")).await), [7, 10, 3]);
}

#[tokio::test]
async fn requests_for_pods_that_nobody_created_move_no_other_pod() {
    let rules = DecisionRules { weights: "0-1-0".parse().unwrap(), ..DecisionRules::default() };
    let (router, state, request) = uneven_cluster(rules, Arc::new(AtomicU64::new(10_000)));
    waiting(&state, &["real"]);
    ask(&router, "/prioritize", &request("real")).await;
    for i in 0..5_000 {
        ask(&router, "/prioritize", &request(&format!("made-up-{i}"))).await;
    }
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("next")).await), [7, 10, 3]);
    assert!(get(&router, "/metrics").await.1.contains("fpga_extender_awaited_bindings 1"));
}

#[tokio::test]
async fn what_pods_of_the_same_owner_use_is_learnt_and_expected() {
    let now = Arc::new(AtomicU64::new(10_000));
    let rules = DecisionRules { weights: "0-1-0".parse().unwrap(), ..DecisionRules::default() };
    let (router, state, request) = uneven_cluster(rules, now);
    // Two pods of the owner have been on c for a window, in which 9 s were used.
    for uid in ["old-1", "old-2"] {
        state.expectations.bound(&placed(uid, "c"), Millis(300_000), MonotonicTime(10_000));
    }
    state.expectations.learn(&state.index, MonotonicTime(10_000));
    state.expectations.bound(&placed("new", "a"), Millis::ZERO, MonotonicTime(10_000));
    assert_eq!(scores_of(&ask(&router, "/prioritize", &request("p")).await), [7, 10, 3]);
    let explained: Value = serde_json::from_str(&get(&router, "/explain/d/p").await.1).unwrap();
    assert_eq!(explained["prioritize"]["nodes"][0]["expected"], json!({"usageMs": 4_500, "pods": 1.0}));
    assert!(get(&router, "/metrics").await.1.contains("fpga_extender_known_owners 1"));
}

#[tokio::test]
async fn with_anti_herd_off_only_measurements_count_and_pods_are_not_waited_for() {
    let rules = DecisionRules {
        anti_herd: AntiHerd::Off,
        weights: "0-1-0".parse().unwrap(),
        ..DecisionRules::default()
    };
    let (router, state, request) = uneven_cluster(rules, Arc::new(AtomicU64::new(10_000)));
    assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
    state.expectations.bound(&placed("p0", "a"), Millis::ZERO, MonotonicTime(10_000));
    for uid in ["p1", "p2"] {
        assert_eq!(scores_of(&ask(&router, "/prioritize", &request(uid)).await), [10, 7, 3]);
    }
}

#[tokio::test]
async fn it_is_ready_when_nodes_and_pods_have_been_seen_and_decides_before_that() {
    let (router, state, request) = uneven_cluster(DecisionRules::default(), Arc::new(AtomicU64::new(10_000)));
    let (status, reason) = get(&router, "/readyz").await;
    assert_eq!((status, reason.contains("the pods of the cluster")), (StatusCode::SERVICE_UNAVAILABLE, true));
    assert_eq!(ask(&router, "/prioritize", &request("p")).await[0]["Score"], 10);
    state.expectations.listed(&HashSet::new());
    assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
}

//! A board that is reconfigured as a whole is taken from its pods only if a node with the same bitstream takes them.

use super::{ask, pod, service};
use fpga_core::board_pods::{BoardPod, Life, Place, WantedInstances};
use fpga_core::decide::DecisionRules;
use fpga_core::node_state::ANNOTATION;
use fpga_core::requirement::Requirement;
use fpga_registry_api::pod_terms;
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::index::Shown;
use k8s_openapi::api::core::v1::{Node, PodSpec};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

/// Shows a node that has `mm` on a board that is reconfigured as a whole and was used for half of the window.
fn show(state: &App, name: &str, more: &Value) {
    let text = json!({
        "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60000, "measuredAtMs": 1, "windowMs": 300_000,
        "usageMs": 150_000, "reconfigurationMs": 0,
        "devices": [{"id": "dm0", "vendor": "intel", "slots": 1, "loaded": [0], "healthy": true,
                     "reconfiguredPart": "board", "usageMs": 150_000}],
        "bitstreams": [{"name": "mm", "digest": "0b".repeat(16), "lastUsedAgoMs": 0}],
        "window": {"bucketMs": 10_000, "usageMs": vec![10_000; 15], "reconfigurationMs": []},
    });
    let mut node = more.clone();
    node["metadata"]["name"] = json!(name);
    node["metadata"]["uid"] = json!(format!("uid-{name}"));
    node["metadata"]["annotations"][ANNOTATION] = json!(text.to_string());
    let node: Node = serde_json::from_value(node).unwrap();
    state.index.apply(node, Shown::Changed, state.clock.read());
}

/// A pod that has the board of a node.
fn user(node: &str, spec: &Value) -> BoardPod {
    let mut whole = json!({"containers": []});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let spec: PodSpec = serde_json::from_value(whole).unwrap();
    BoardPod {
        uid: format!("user-of-{node}"),
        node: node.to_owned(),
        place: Place::Bound,
        life: Life::Stays,
        priority: 0,
        since: None,
        boards: BTreeSet::from(["dm0".to_owned()]),
        wanted: WantedInstances::default(),
        requirement: Requirement::default(),
        terms: pod_terms(spec.tolerations.as_ref(), spec.node_selector.as_ref(), spec.affinity.as_ref()),
    }
}

#[tokio::test]
async fn a_node_that_would_not_take_the_pods_of_a_board_takes_over_none_of_its_load() {
    let tainted = || json!({"spec": {"taints": [{"key": "fpga", "effect": "NoSchedule"}]}});
    let tolerating = || json!({"tolerations": [{"key": "fpga", "operator": "Exists"}]});
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    for (what, other, spec, expected) in [
        ("is open", json!({}), json!({}), true),
        ("is cordoned", json!({"spec": {"unschedulable": true}}), json!({}), false),
        ("is not Ready", not_ready, json!({}), false),
        ("is tainted", tainted(), json!({}), false),
        ("is tainted, which the pods tolerate", tainted(), tolerating(), true),
        ("is not selected", zone("b"), json!({"nodeSelector": {"zone": "a"}}), false),
        ("is selected", zone("a"), json!({"nodeSelector": {"zone": "a"}}), true),
    ] {
        let (router, state) = service(DecisionRules::default());
        show(&state, "candidate", &zone("a"));
        show(&state, "other", &other);
        state.index.listed(&["candidate", "other"].map(str::to_owned).into());
        state.expectations.listed(&HashSet::new());
        let user = user("candidate", &spec);
        state.board_pods.show(&user.uid, Some(&user));
        state.board_pods.listed(&HashSet::from([user.uid.clone()]));
        let asks = pod(&json!({}), &json!({"fpga-scheduling.io/bitstreams": "sobel"}));
        let answer = ask(&router, "/fpga/filter", &json!({"Pod": asks, "NodeNames": ["candidate"]})).await;
        let passes = answer["NodeNames"] == json!(["candidate"]);
        assert_eq!(passes, expected, "the other node {what}: {answer}");
    }
}

#[tokio::test]
async fn load_without_pods_goes_nowhere_and_needs_an_open_node_alone() {
    let tainted = json!({"spec": {"taints": [{"key": "fpga", "effect": "NoSchedule"}]}});
    for (other, expected) in [(tainted, true), (json!({"spec": {"unschedulable": true}}), false)] {
        let (router, state) = service(DecisionRules::default());
        show(&state, "candidate", &json!({}));
        show(&state, "other", &other);
        state.index.listed(&["candidate", "other"].map(str::to_owned).into());
        state.expectations.listed(&HashSet::new());
        state.board_pods.listed(&HashSet::new());
        let asks = pod(&json!({}), &json!({"fpga-scheduling.io/bitstreams": "sobel"}));
        let answer = ask(&router, "/fpga/filter", &json!({"Pod": asks, "NodeNames": ["candidate"]})).await;
        assert_eq!(answer["NodeNames"] == json!(["candidate"]), expected, "{other}: {answer}");
    }
}

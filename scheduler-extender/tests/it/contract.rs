//! Recorded requests of a real kube-scheduler, answered by the whole service without a port.
//! `tests/fixtures/README.md` describes the recordings.

mod budget;
mod expected_load;
mod many_boards;
mod redistribution;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use fpga_core::decide::DecisionRules;
use fpga_core::units::{MonotonicTime, WallTime};
use fpga_extender_api::NodeChanges;
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::config::Config;
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::routes::{self, Routes};
use fpga_scheduler_extender::settings::Settings;
use http_body_util::BodyExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tower::ServiceExt as _;

const MAX_BODY_BYTES: usize = 1 << 20;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A service with a clock that stands still, and its state.
fn service(rules: DecisionRules) -> (Router, Arc<App>) {
    service_at(rules, Arc::new(AtomicU64::new(10_000)))
}

/// A service with a clock that the test sets, in milliseconds since the start, and its state.
fn service_at(rules: DecisionRules, now: Arc<AtomicU64>) -> (Router, Arc<App>) {
    let now = move || MonotonicTime(now.load(Ordering::Relaxed));
    let clock = Clock::new(move || Moment { now: now(), wall: WallTime(1_760_000_000_000) });
    let state = Arc::new(App::new(rules, clock));
    let routes = Routes { prefix: "/fpga".into(), max_body_bytes: MAX_BODY_BYTES };
    (routes::router(Arc::clone(&state), &routes), state)
}

fn show(state: &App, name: &str, labels: &[(&str, &str)], annotation: Option<&str>) {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let mut node = ObjectMeta {
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        labels: Some(labels.iter().map(owned).collect()),
        ..ObjectMeta::default()
    };
    let at = state.clock.read();
    state.index.apply(node.clone(), Shown::Listed, at);
    if let Some(text) = annotation {
        node.annotations = Some([("fpga-scheduling.io/node-state".to_owned(), text.to_owned())].into());
        state.index.apply(node, Shown::Changed, at);
    }
}

/// A service that knows the nodes of the recordings. Only the node that was best there has a state.
fn recorded_cluster() -> (Router, Arc<App>) {
    let (router, state) = service(DecisionRules::default());
    let names = ["node-0", "node-1", "node-2"].map(str::to_owned);
    for name in &names {
        let idle = node_state("intel", 0, "sobel");
        let annotation = (name == "node-1").then_some(idle.as_str());
        show(&state, name, &[("fpga-scheduling.io/fpga-vendor", "intel")], annotation);
    }
    state.index.listed(&names.into_iter().collect());
    state.expectations.listed(&HashSet::new());
    (router, state)
}

fn node_state(vendor: &str, usage_ms: u64, bitstream: &str) -> String {
    json!({
        "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60000, "measuredAtMs": 1, "windowMs": 300_000,
        "usageMs": usage_ms, "reconfigurationMs": 0,
        "devices": [{"id": "dm0", "vendor": vendor, "slots": 4, "loaded": [0], "healthy": true}],
        "bitstreams": [{"name": bitstream, "lastUsedAgoMs": 0}],
        "window": {"bucketMs": 10_000, "usageMs": [usage_ms], "reconfigurationMs": []},
    })
    .to_string()
}

fn pod(labels: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": labels, "annotations": annotations}})
}

async fn post(router: &Router, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
    let request =
        Request::post(path).header(header::CONTENT_TYPE, "application/json").body(body.into()).unwrap();
    send(router, request).await
}

async fn get(router: &Router, path: &str) -> (StatusCode, String) {
    let (status, body) = send(router, Request::get(path).body(Body::empty()).unwrap()).await;
    (status, String::from_utf8(body).unwrap())
}

async fn send(router: &Router, request: Request<Body>) -> (StatusCode, Vec<u8>) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn ask(router: &Router, path: &str, request: &Value) -> Value {
    let (status, body) = post(router, path, request.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn every_recorded_request_gets_an_answer_like_the_one_that_was_accepted() {
    for name in [
        "filter.node-names",
        "filter.full-nodes",
        "prioritize.node-names",
        "prioritize.full-nodes",
        "preempt.node-names",
        "preempt.full-nodes",
    ] {
        let (router, _) = recorded_cluster();
        let fixture = fixture(name);
        let mut answer = ask(&router, fixture["path"].as_str().unwrap(), &fixture["request"]).await;
        let mut accepted = fixture["accepted_response"].clone();
        for side in [&mut answer, &mut accepted] {
            // Go does not distinguish absent and null.
            if let Some(map) = side.as_object_mut() {
                map.retain(|_, value| !value.is_null());
            }
        }
        assert_eq!(answer, accepted, "{name}");
    }
}

#[tokio::test]
async fn verbs_are_found_with_and_without_the_prefix() {
    let (router, _) = recorded_cluster();
    let request = fixture("filter.node-names")["request"].to_string();
    assert_eq!(
        post(&router, "/filter", request.clone()).await,
        post(&router, "/fpga/filter", request.clone()).await
    );
    assert_eq!(post(&router, "/other/filter", request).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn whole_nodes_go_back_byte_for_byte() {
    let (router, state) = recorded_cluster();
    show(&state, "node-1", &[("fpga-scheduling.io/fpga-vendor", "xilinx")], None);
    let request = fixture("filter.full-nodes")["request"].clone();
    let items = request["Nodes"]["items"].as_array().unwrap();
    let kept: Vec<String> =
        items.iter().filter(|item| item["metadata"]["name"] != "node-1").map(Value::to_string).collect();
    let (_, body) = post(&router, "/filter", request.to_string()).await;
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains(&format!(r#""items":[{}]"#, kept.join(","))), "{body}");
    assert!(body.contains(
        r#""FailedNodes":{},"FailedAndUnresolvableNodes":{"node-1":"FPGA vendor does not match"}"#
    ));
}

#[tokio::test]
async fn a_bitstream_goes_where_it_is_valid_and_platform_slots_and_loaded_are_asked_of_the_board() {
    let text = "bitstreams: {valid: [{name: sobel, boards: [{vendor: intel}]}]}";
    let config = Config::of_file(Settings::default(), "extender.yaml".as_ref(), text, WallTime(1)).unwrap();
    let clock = Clock::new(|| Moment { now: MonotonicTime(10_000), wall: WallTime(1_760_000_000_000) });
    let state = Arc::new(App::with_config(config, clock));
    let router =
        routes::router(Arc::clone(&state), &Routes { prefix: String::new(), max_body_bytes: MAX_BODY_BYTES });
    show(&state, "a", &[], Some(&node_state("intel", 0, "sobel")));
    show(&state, "b", &[], Some(&node_state("xilinx", 0, "mm")));
    state.index.listed(&HashSet::from(["a", "b"].map(str::to_owned)));
    let rejected = async |annotations: &Value| {
        let request = json!({"Pod": pod(&json!({}), annotations), "NodeNames": ["a", "b"]});
        ask(&router, "/filter", &request).await["FailedAndUnresolvableNodes"].clone()
    };
    let sobel = json!({"fpga-scheduling.io/bitstreams": "sobel"});
    assert_eq!(rejected(&sobel).await, json!({"b": "bitstream is not valid on the FPGA device"}));
    assert_eq!(rejected(&json!({"fpga-scheduling.io/bitstreams": "mm"})).await, json!({}));
    let slots = json!({"fpga-scheduling.io/slots": "5"});
    let too_few = "FPGA device has too few slots";
    assert_eq!(rejected(&slots).await, json!({"a": too_few, "b": too_few}));
    let loaded = json!({"fpga-scheduling.io/loaded-bitstreams": "mm"});
    let not_loaded = "FPGA device has not loaded the bitstream that must be there";
    assert_eq!(rejected(&loaded).await, json!({"a": not_loaded}));
    let platform = json!({"fpga-scheduling.io/platform": "Intel FPGA"});
    let other = "FPGA platform does not match";
    assert_eq!(rejected(&platform).await, json!({"a": other, "b": other}));
    let metrics = get(&router, "/metrics").await.1;
    assert!(metrics.contains(r#"fpga_extender_rejections_total{reason="invalid_bitstream"} 1"#), "{metrics}");
    // A change of the file applies to the next decision.
    state.config.judge("extender.yaml".as_ref(), Ok("bitstreams: {unlisted: reject}"), WallTime(2));
    let nowhere = "bitstream is not valid on the FPGA device";
    assert_eq!(rejected(&sobel).await, json!({"a": nowhere, "b": nowhere}));
}

#[tokio::test]
async fn the_annotation_decides_and_every_term_is_explained() {
    let (router, state) = service(DecisionRules::default());
    let states = [("a", "intel", 9_000), ("b", "intel", 1_000), ("c", "xilinx", 0)];
    for (name, vendor, usage) in states {
        show(&state, name, &[], Some(&node_state(vendor, usage, if name == "a" { "sobel" } else { "mm" })));
    }
    state.index.listed(&HashSet::from(["a", "b", "c"].map(str::to_owned)));
    let pod = pod(
        &json!({"fpga-scheduling.io/fpga-vendor": "intel"}),
        &json!({"fpga-scheduling.io/bitstreams": "sobel"}),
    );
    let filtered = ask(&router, "/filter", &json!({"Pod": pod, "NodeNames": ["a", "b", "c", "d"]})).await;
    assert_eq!(filtered["NodeNames"], json!(["a", "b"]));
    assert_eq!(
        filtered["FailedAndUnresolvableNodes"],
        json!({"c": "FPGA vendor does not match", "d": "node is not known to the FPGA scheduler extender"})
    );
    let scores = ask(&router, "/prioritize", &json!({"Pod": pod, "NodeNames": ["a", "b"]})).await;
    // a: locality 1, usage 1/2, reconfiguration 1; b: locality 0, usage 1, reconfiguration 1
    assert_eq!(scores, json!([{"Host": "a", "Score": 8}, {"Host": "b", "Score": 8}]));

    let (status, body) = get(&router, "/explain/d/p").await;
    assert_eq!(status, StatusCode::OK);
    let explained: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        explained["filter"]["nodes"][2],
        json!({"node": "c", "source": "watched", "rejection": "vendor"})
    );
    let of_a = &explained["prioritize"]["nodes"][0];
    assert_eq!(
        (&of_a["node"], &of_a["score"], &of_a["freshness"]),
        (&json!("a"), &json!(8), &json!("fresh"))
    );
    assert_eq!(of_a["usage"], json!({"value": 0.5, "basis": "measured"}));
    assert_eq!(
        of_a["measured"],
        json!({"usageMs": 9000, "reconfigurationMs": 0, "slots": 4, "freeSlots": 3, "queued": 0, "ageMs": 0})
    );
    assert_eq!(of_a["queue"], json!({"value": 0.0, "basis": "unweighted"}));
    let further = json!({"locality": 1.0, "usage": 2.0, "reconfiguration": 2.0, "freeSlots": 0.0, "queue": 0.0, "loaded": 0.0});
    assert_eq!(explained["rules"]["weights"], further);
    let votes = json!({"schedulerWeight": 10, "pointsPerScore": 100, "oursAtMost": 1000, "pluginsAtMost": 1200,
        "pluginsCanOutvoteBy": 200, "lead": null});
    assert_eq!(explained["votes"], votes);
    assert_eq!(get(&router, "/explain/d/other").await.0, StatusCode::NOT_FOUND);

    let decisions: Value = serde_json::from_str(&get(&router, "/decisions").await.1).unwrap();
    let decision = &decisions[0];
    assert_eq!((&decision["name"], &decision["bitstreams"]), (&json!("p"), &json!(["sobel"])));
    assert_eq!((&decision["candidates"], &decision["passed"]), (&json!(4), &json!(2)));
    assert_eq!(decision["rejections"], json!({"unknownNode": 1, "vendor": 1}));
    assert_eq!(decision["best"], json!([{"node": "a", "score": 8}, {"node": "b", "score": 8}]));
    assert_eq!(get(&router, &format!("/decisions?since={}", u64::MAX)).await.1, "[]");

    let nodes: Value = serde_json::from_str(&get(&router, "/nodes").await.1).unwrap();
    assert_eq!(nodes[0]["known"]["usageMs"], 9_000);
    assert_eq!((&nodes[0]["freshness"], &nodes[0]["source"]), (&json!("fresh"), &json!("watched")));
}

#[tokio::test]
async fn garbage_in_an_annotation_is_never_best_and_is_told() {
    let (router, state) = service(DecisionRules::default());
    show(&state, "good", &[], Some(&node_state("intel", 9_000, "mm")));
    show(&state, "bad", &[("fpga-scheduling.io/fpga-vendor", "intel")], Some("{\"v\":1,"));
    state.index.listed(&HashSet::from(["good", "bad"].map(str::to_owned)));
    let pod = pod(&json!({"fpga-scheduling.io/fpga-vendor": "intel"}), &json!({}));
    let request = json!({"Pod": pod, "NodeNames": ["good", "bad"]});
    assert_eq!(ask(&router, "/filter", &request).await["NodeNames"], json!(["good", "bad"]));
    let scores = ask(&router, "/prioritize", &request).await;
    assert_eq!(scores, json!([{"Host": "good", "Score": 10}, {"Host": "bad", "Score": 0}]));
    let (_, metrics) = get(&router, "/metrics").await;
    assert!(metrics.contains(r#"fpga_extender_nodes{state="unreadable"} 1"#), "{metrics}");
    assert!(get(&router, "/nodes").await.1.contains("it is not a node state"));
}

#[tokio::test]
async fn a_pod_that_asks_for_nothing_of_ours_passes_untouched_even_before_the_nodes_are_known() {
    let (router, _) = service(DecisionRules::default());
    let request = json!({"Pod": pod(&json!({"app": "web"}), &Value::Null), "NodeNames": ["x", "y"]});
    assert_eq!(ask(&router, "/filter", &request).await["NodeNames"], json!(["x", "y"]));
    let scores = ask(&router, "/prioritize", &request).await;
    assert_eq!(scores, json!([{"Host": "x", "Score": 0}, {"Host": "y", "Score": 0}]));
}

#[tokio::test]
async fn before_the_nodes_are_known_no_fpga_pod_is_decided() {
    let (router, _) = service(DecisionRules::default());
    assert_eq!(get(&router, "/healthz").await.0, StatusCode::OK);
    assert_eq!(get(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    for verb in ["filter", "prioritize", "preempt"] {
        let request = fixture(&format!("{verb}.node-names"))["request"].to_string();
        let (status, body) = post(&router, &format!("/{verb}"), request).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(String::from_utf8(body).unwrap().contains("not known yet"));
    }
    let (router, _) = recorded_cluster();
    assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_pod_that_cannot_be_understood_is_rejected_by_every_node_and_told_what_to_write() {
    let (router, _) = recorded_cluster();
    let pod = pod(&json!({}), &json!({"fpga-scheduling.io/bitstreams": "so bel"}));
    for mode in ["NodeNames", "Nodes"] {
        let nodes = match mode {
            "NodeNames" => json!(["node-0", "node-1"]),
            _ => json!({"items": [{"metadata": {"name": "node-0"}}, {"metadata": {"name": "node-1"}}]}),
        };
        let filtered = ask(&router, "/filter", &json!({"Pod": pod, mode: nodes})).await;
        assert_eq!(filtered["Error"], "", "with `ignorable: true` an error would let it pass everywhere");
        let reason = "what the pod asks of an FPGA can't be understood (see kubectl fpga explain)";
        let all = json!({"node-0": reason, "node-1": reason});
        assert_eq!(filtered["FailedAndUnresolvableNodes"], all);
        let passed = if mode == "Nodes" { &filtered["Nodes"]["items"] } else { &filtered["NodeNames"] };
        assert_eq!(passed, &json!([]));
    }
    let request = json!({"Pod": pod, "NodeNames": ["node-0"]});
    assert_eq!(ask(&router, "/prioritize", &request).await, json!([{"Host": "node-0", "Score": 0}]));
    let explained: Value = serde_json::from_str(&get(&router, "/explain/d/p").await.1).unwrap();
    let problem = explained["problem"].as_str().unwrap();
    assert!(problem.contains("annotation fpga-scheduling.io/bitstreams"), "{explained}");
    assert_eq!(explained["filter"]["nodes"][0]["rejection"], "misunderstood");
    let metrics = get(&router, "/metrics").await.1;
    for line in [
        r#"fpga_extender_errors_total{verb="filter",kind="requirement"} 2"#,
        r#"fpga_extender_rejections_total{reason="misunderstood"} 4"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn all_nodes_are_told_in_pieces_as_one_array_in_the_order_of_their_names() {
    let (router, state) = service(DecisionRules::default());
    assert_eq!(get(&router, "/nodes").await.1, "[]");
    let names: HashSet<String> = (0..700).map(|index| format!("node-{index:03}")).collect();
    for name in &names {
        show(&state, name, &[], Some(&node_state("intel", 1_000, "sobel")));
    }
    state.index.listed(&names);
    let (_, text) = get(&router, "/nodes").await;
    assert!(text.len() > 100_000, "several pieces: {}", text.len());
    let nodes: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!((nodes.len(), &nodes[699]["name"]), (700, &json!("node-699")));
    assert!(nodes.is_sorted_by_key(|node| node["name"].as_str().unwrap().to_owned()));
    assert_eq!(state.reading_budget.taken(), 0, "what the answer held is given back");
}

#[tokio::test]
async fn only_what_has_changed_of_the_nodes_since_a_version_is_told() {
    let (router, state) = service(DecisionRules::default());
    let ask = async |since: &str| {
        let (status, text) = get(&router, &format!("/nodes?since={since}")).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_str::<NodeChanges>(&text).unwrap()
    };
    let names =
        |changes: &NodeChanges| changes.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    let all: HashSet<String> = (0..700).map(|index| format!("node-{index:03}")).collect();
    for name in &all {
        show(&state, name, &[], Some(&node_state("intel", 1_000, "sobel")));
    }
    state.index.listed(&all);
    let whole = ask("").await;
    assert!(whole.is_whole && whole.nodes.is_sorted_by_key(|node| node.name.clone()));
    assert_eq!(names(&whole).into_iter().collect::<HashSet<_>>(), all);
    let nothing = ask(&whole.version).await;
    assert!(!nothing.is_whole && nothing.nodes.is_empty() && nothing.gone.is_empty(), "{nothing:?}");

    show(&state, "node-007", &[("fpga-scheduling.io/board", "a10")], None);
    state.index.delete("node-100");
    let changes = ask(&whole.version).await;
    assert_eq!((names(&changes), changes.is_whole), (vec!["node-007".to_owned()], false));
    assert_eq!(changes.gone, ["node-100"]);
    assert_eq!(changes.nodes[0].labels.board.as_deref(), Some("a10"));
    assert_eq!(ask("another-replicas").await.nodes.len(), 699, "who has an unknown version gets all");
    assert_eq!(state.reading_budget.taken(), 0, "what the answers held is given back");
}

#[tokio::test]
async fn while_the_answer_about_all_nodes_is_read_slowly_nodes_change_and_decisions_go_on() {
    let (router, state) = service(DecisionRules::default());
    let names: HashSet<String> = (0..700).map(|index| format!("node-{index:03}")).collect();
    for name in &names {
        show(&state, name, &[], Some(&node_state("intel", 1_000, "sobel")));
    }
    state.index.listed(&names);
    let request = Request::get("/nodes").body(Body::empty()).unwrap();
    let slow = router.clone().oneshot(request).await.unwrap();
    // If the index were still locked, this would block for ever.
    show(&state, "node-000", &[], Some(&node_state("intel", 2_000, "mm")));
    let pod = pod(&json!({"fpga-scheduling.io/fpga-vendor": "intel"}), &json!({}));
    let filtered = ask(&router, "/filter", &json!({"Pod": pod, "NodeNames": ["node-000"]})).await;
    assert_eq!(filtered["NodeNames"], json!(["node-000"]));
    assert!(slow.into_body().collect().await.unwrap().to_bytes().len() > 100_000);
}

#[tokio::test]
async fn malformed_requests_are_400_with_a_reason_and_oversized_ones_413() {
    let (router, _) = recorded_cluster();
    for verb in ["filter", "prioritize", "preempt"] {
        let path = format!("/{verb}");
        for body in ["", "{", "nonsense", r#"{"Pod":3}"#, r#"{"NodeNames":["a"]}"#, "\u{0}"] {
            let (status, reason) = post(&router, &path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{body:?}");
            let reason: Value = serde_json::from_slice(&reason).unwrap();
            assert!(reason["error"].as_str().unwrap().contains("request"), "{reason}");
        }
        let deep = format!(r#"{{"Pod":{}"#, "[".repeat(500_000));
        assert_eq!(post(&router, &path, deep).await.0, StatusCode::BAD_REQUEST);
        let (status, _) = post(&router, &path, " ".repeat(MAX_BODY_BYTES + 1)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    let metrics = get(&router, "/metrics").await.1;
    for line in [
        r#"fpga_extender_errors_total{verb="filter",kind="malformed"} 7"#,
        r#"fpga_extender_errors_total{verb="preempt",kind="too_large"} 1"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn preemption_keeps_only_nodes_that_would_fit_with_their_victims_as_they_came() {
    for mode in ["node-names", "full-nodes"] {
        let (router, state) = recorded_cluster();
        show(&state, "node-1", &[("fpga-scheduling.io/fpga-vendor", "xilinx")], None);
        let fixture = fixture(&format!("preempt.{mode}"));
        let answer = ask(&router, "/preempt", &fixture["request"]).await;
        let mut expected = fixture["accepted_response"].clone();
        expected["NodeNameToMetaVictims"].as_object_mut().unwrap().remove("node-1");
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn calls_are_counted_by_verb_and_mode_and_those_with_one_node_apart() {
    let (router, _) = recorded_cluster();
    for name in ["filter.node-names", "filter.full-nodes"] {
        ask(&router, "/filter", &fixture(name)["request"]).await;
    }
    let mut one = fixture("filter.node-names")["request"].clone();
    one["NodeNames"] = json!(["node-0"]);
    ask(&router, "/filter", &one).await;
    let metrics = get(&router, "/metrics").await.1;
    for line in [
        r#"fpga_extender_request_duration_seconds_count{verb="filter",mode="names",outcome="answered"} 2"#,
        r#"fpga_extender_request_duration_seconds_count{verb="filter",mode="full",outcome="answered"} 1"#,
        "fpga_extender_single_node_filters_total 1",
        r#"fpga_extender_nodes{state="absent"} 2"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

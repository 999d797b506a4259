//! The requests of kube-scheduler, or of a caller that claims to be it.

use bytes::Bytes;
use fpga_core::decide::DecisionRules;
use fpga_core::units::{MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::verbs;
use fpga_scheduler_extender::wire::{Mode, Nodes, read_args};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The nodes that the extender knows; the seeds name them.
const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filtered<'a> {
    #[serde(borrow)]
    nodes: Option<List<'a>>,
    node_names: Option<Vec<String>>,
    failed_nodes: BTreeMap<String, String>,
    failed_and_unresolvable_nodes: BTreeMap<String, String>,
    error: String,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Priority {
    host: String,
    score: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Preempted {
    node_name_to_meta_victims: BTreeMap<String, Victims>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Victims {
    pods: Vec<serde::de::IgnoredAny>,
}

/// Takes `data` as the body of each verb. An answer is JSON of the protocol's shape; filter answers for every
/// candidate and returns whole nodes byte for byte; prioritize scores every candidate within the limits; preempt
/// returns no candidate without victims.
///
/// # Panics
/// If this does not hold.
pub fn request(data: &[u8]) {
    let (app, request) = (extender(), Bytes::copy_from_slice(data));
    let answer = |verb| verbs::answer(&app, verb, &request).map(|answer| Vec::from(answer.body));
    if let Ok(answer) = answer(Verb::Filter) {
        check_filter(data, &answer);
    }
    if let Ok(answer) = answer(Verb::Prioritize) {
        let scores: Vec<Priority> = read(&answer);
        let asked = candidates(data);
        let hosts: Vec<_> = scores.iter().map(|priority| &priority.host).collect();
        assert_eq!(hosts, asked.iter().collect::<Vec<_>>());
        assert!(scores.iter().all(|priority| priority.score <= 10), "a score above the highest");
    }
    if let Ok(answer) = answer(Verb::Preempt) {
        let left: Preempted = read(&answer);
        assert!(left.node_name_to_meta_victims.values().all(|victims| !victims.pods.is_empty()));
    }
}

fn check_filter(data: &[u8], body: &[u8]) {
    // The insides of whole nodes go back unread.
    if serde_json::from_slice::<serde::de::IgnoredAny>(data).is_err() {
        return;
    }
    let answer: Filtered<'_> = read(body);
    assert!(answer.failed_nodes.is_empty(), "a rejection that preemption would try to resolve");
    if !answer.error.is_empty() {
        return;
    }
    let (_, nodes) = parts(data);
    let rejected = &answer.failed_and_unresolvable_nodes;
    match nodes.mode() {
        Mode::Names => {
            let passed = answer.node_names.unwrap_or_else(|| panic!("names were asked, none came back"));
            let told: BTreeSet<_> = passed.iter().chain(rejected.keys()).map(String::as_str).collect();
            assert_eq!(told, nodes.names().collect());
        }
        Mode::Full => {
            let passed = answer.nodes.unwrap_or_else(|| panic!("nodes were asked, none came back")).items;
            let kept = nodes.names().filter(|name| !rejected.contains_key(*name)).count();
            assert_eq!(passed.len(), kept, "a node is neither here nor there");
            let asked = std::str::from_utf8(data).unwrap_or_default();
            assert!(passed.iter().all(|item| asked.contains(item.get())), "a node came back changed");
        }
    }
}

fn candidates(data: &[u8]) -> Vec<String> {
    parts(data).1.names().map(str::to_owned).collect()
}

fn parts(data: &[u8]) -> (fpga_scheduler_extender::wire::Pod<'_>, Nodes<'_>) {
    read_args(data).unwrap_or_else(|error| panic!("answered, and yet {error}"))
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> T {
    serde_json::from_slice(body)
        .unwrap_or_else(|error| panic!("the answer is not one: {error}: {}", String::from_utf8_lossy(body)))
}

/// An extender that knows [`NODES`]: one with a fresh state, one with a state that can't be decoded, and one with
/// labels only.
fn extender() -> App {
    let clock = Clock::new(|| Moment { now: MonotonicTime(10_000), wall: WallTime(1_760_000_000_000) });
    let app = App::new(DecisionRules::default(), clock);
    let fresh = r#"{"v":1,"boot":1,"seq":1,"heartbeatMs":60000,"measuredAtMs":1,"windowMs":300000,"usageMs":7,
        "reconfigurationMs":0,"devices":[{"id":"dm0","vendor":"intel","slots":4,"loaded":[0],"healthy":true}],
        "bitstreams":[{"name":"sobel","lastUsedAgoMs":0}],"window":{"bucketMs":10000,"usageMs":[7],"reconfigurationMs":[]}}"#;
    for (name, annotation) in NODES.into_iter().zip([None, Some(fresh), Some("{")]) {
        let mut node = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            labels: Some([("fpga-scheduling.io/fpga-vendor".to_owned(), "intel".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let at = app.clock.read();
        app.index.apply(node.clone(), Shown::Listed, at);
        if let Some(text) = annotation {
            node.annotations = Some([("fpga-scheduling.io/node-state".to_owned(), text.to_owned())].into());
            app.index.apply(node, Shown::Changed, at);
        }
    }
    app.index.listed(&NODES.map(str::to_owned).into_iter().collect());
    app.expectations.listed(&HashSet::new());
    app
}

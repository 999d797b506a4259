//! A look for moves against an API server that answers as a test wishes.

use super::*;
use crate::cluster::Cluster;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use fpga_cluster::moves::MovePolicy;
use fpga_core::fixtures::{mk_device, mk_state};
use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER, NodeState, encode_whole};
use fpga_net::election::{Election, Timing};
use fpga_registry_api::{LibraryRules, MoveRecords};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::{Lookup, Store, store};
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Answers a request, or leaves it to [`answer`].
type Answer = fn(&str, &str) -> Option<Response>;

fn status(code: u16, message: &str) -> Response {
    let reason = if code == 404 { "NotFound" } else { "Test" };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code});
    (axum::http::StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

/// An API server with one Deployment in each namespace. It keeps the records that are written.
fn api_server(first: Answer, records: Arc<Mutex<Option<Value>>>) -> Client {
    let handler = move |request: Request| async move {
        let (parts, body) = request.into_parts();
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        if let Some(answer) = first(method, path) {
            return answer;
        }
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_record = path.contains("/configmaps");
        match method {
            "GET" if is_record => records
                .lock()
                .unwrap()
                .clone()
                .map_or_else(|| status(404, "none"), |it| Json(it).into_response()),
            "POST" | "PUT" => {
                object["metadata"]["resourceVersion"] = json!("1");
                if is_record {
                    *records.lock().unwrap() = Some(object.clone());
                }
                Json(object).into_response()
            }
            _ => answer(path),
        }
    };
    Client::new(Router::new().fallback(handler), "default")
}

fn answer(path: &str) -> Response {
    let last = path.rsplit('/').next().unwrap_or_default();
    let namespace = path.split('/').skip_while(|part| *part != "namespaces").nth(1).unwrap_or_default();
    let metadata = |owner: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": namespace, "controller": true});
        json!({"name": last, "uid": last, "ownerReferences": [owner], "generation": 1, "resourceVersion": "1"})
    };
    let object = match () {
        () if path.contains("/replicasets/") => json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata("web"),
        }),
        () if path.contains("/deployments/") => json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "uid": namespace, "generation": 1},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {}},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
        }),
        () if path.contains("/nodes/") => json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": last},
        }),
        () if path.ends_with("/pods") => {
            json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []})
        }
        () => return status(404, path),
    };
    Json(object).into_response()
}

fn stored<K>(objects: Vec<Value>) -> Store<K>
where
    K: Lookup + Clone + serde::de::DeserializeOwned + 'static,
    K::DynamicType: Eq + Hash + Clone + Default,
{
    let (reader, mut writer) = store();
    writer.apply_watcher_event(&watcher::Event::Init);
    for object in objects {
        writer.apply_watcher_event(&watcher::Event::InitApply(serde_json::from_value(object).unwrap()));
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
    reader
}

/// The nodes `n` and `m`, and pods of `n`, by namespace and name of the ReplicaSet, whose boards are gone.
fn cluster(pods: &[(&str, &str)]) -> Cluster {
    let node = |name: &str| {
        let state = NodeState { devices: vec![mk_device("intel", "a10", "1")], ..mk_state() };
        let written = json!({
            "manager": FIELD_MANAGER, "operation": "Apply", "time": Timestamp::now().to_string(),
            "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{ANNOTATION}"): {}}}},
        });
        let annotations = json!({ANNOTATION: encode_whole(&state).unwrap().text});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        json!({
            "metadata": {"name": name, "annotations": annotations, "managedFields": [written]},
            "status": {"conditions": ready},
        })
    };
    let pod = |(namespace, replica_set): &(&str, &str)| {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": replica_set, "controller": true,
        });
        json!({
            "metadata": {
                "namespace": namespace, "name": "p", "uid": format!("uid-of-{namespace}"), "ownerReferences": [owner],
                "annotations": {"fpga-scheduling.io/boards": "gone", "fpga-scheduling.io/bitstreams": "sobel"},
            },
            "spec": {"nodeName": "n", "containers": []},
        })
    };
    Cluster {
        nodes: stored(vec![node("n"), node("m")]),
        pods: stored(pods.iter().map(pod).collect()),
        bitstreams: stored(Vec::new()),
        namespaces: stored(Vec::new()),
    }
}

/// What became of the pods in one look, and which stay and why, by namespace.
async fn looked(
    pods: &[(&str, &str)],
    first: Answer,
) -> (BTreeMap<String, MoveOutcome>, BTreeMap<String, String>) {
    let records = Arc::default();
    let client = api_server(first, Arc::clone(&records));
    let (election, mut leadership) =
        Election::new(client.clone(), "kube-fpga", "lease", "me".into(), Timing::of(Duration::from_secs(15)));
    let (_stop, stopped) = watch::channel(false);
    let race = tokio::spawn(election.run(stopped));
    leadership.changed().await;
    let settings = MoveSettings {
        mode: MoveMode::Evict,
        namespace: "kube-fpga".into(),
        policy: MovePolicy { per_interval: 10, per_hour: 10, cool_down: Millis::ZERO },
        board_grace: Millis::ZERO,
        moved_off_time: Millis::from_secs(60),
        recovery: Millis::from_secs(60),
        new_before_old: NewBeforeOld::Never,
        rebalance: Rebalance { interval: Millis::from_secs(60), least_per_hour: 0 },
        library: LibraryRules::default(),
    };
    let mut mover = Mover::new(client, settings, Metrics::default(), "me".into());
    mover.tick(&cluster(pods), &leadership).await.unwrap();
    race.abort();
    let records: Option<Value> = records.lock().unwrap().take();
    let data = records.unwrap()["data"].clone();
    let moves: MoveRecords =
        serde_json::from_str(data[fpga_registry_api::MOVES_KEY].as_str().unwrap()).unwrap();
    let held: Vec<HeldMove> =
        serde_json::from_str(data[fpga_registry_api::HELD_KEY].as_str().unwrap()).unwrap();
    (
        moves.0.into_iter().map(|record| (record.namespace, record.outcome)).collect(),
        held.into_iter().map(|held| (held.namespace, held.reason)).collect(),
    )
}

#[tokio::test]
async fn an_owner_that_no_object_can_be_holds_its_own_pod_and_no_other() {
    for owner in ["a b", "a%b", "../../x", "", "ü"] {
        let (moved, held) = looked(&[("evil", owner), ("shop", "rs")], |_, _| None).await;
        assert_eq!(moved, [("shop".to_owned(), MoveOutcome::Evicted)].into(), "{owner:?}");
        assert!(held["evil"].contains("ReplicaSet"), "{owner:?}: {held:?}");
    }
}

#[tokio::test]
async fn a_workload_that_the_api_server_does_not_tell_of_holds_its_own_pod_and_no_other() {
    let (moved, held) = looked(&[("evil", "rs"), ("shop", "rs")], |_, path| {
        path.contains("evil/replicasets").then(|| status(500, "the object is broken"))
    })
    .await;
    assert_eq!(moved, [("shop".to_owned(), MoveOutcome::Evicted)].into());
    assert!(held["evil"].contains("the object is broken"), "{held:?}");
}

#[tokio::test]
async fn an_eviction_that_fails_is_given_up_with_the_reason_and_stops_no_other() {
    // Of a pod with two budgets the Eviction API says 500.
    let (moved, _) = looked(&[("evil", "rs"), ("shop", "rs")], |_, path| {
        path.contains("evil/pods/p/eviction").then(|| status(500, "two budgets"))
    })
    .await;
    assert_eq!(moved["shop"], MoveOutcome::Evicted);
    assert_eq!(moved["evil"], MoveOutcome::GivenUp("two budgets".into()));
}

#[tokio::test]
async fn a_step_that_fails_goes_on_later_and_stops_no_other() {
    let (moved, _) = looked(&[("evil", "rs"), ("shop", "rs")], |_, path| {
        path.contains("evil/pods/p/eviction").then(|| "no status".into_response())
    })
    .await;
    assert_eq!(moved["shop"], MoveOutcome::Evicted);
    assert_eq!(moved["evil"], MoveOutcome::Begun);
}

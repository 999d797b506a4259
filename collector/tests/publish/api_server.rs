//! A stand-in for an API server with one node object, which can be read and applied to.

use crate::common::DEADLINE;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::oneshot;

/// The stand-in's node object, the writes to it, and the failures to simulate.
#[derive(Default)]
pub struct Api {
    pub uid: String,
    pub annotation: Option<String>,
    /// All labels; `owned` has the keys of those that the collector set.
    pub labels: HashMap<String, String>,
    pub owned: Vec<String>,
    pub labellings: usize,
    pub writes: Vec<(Instant, NodeState)>,
    pub fail: Vec<u16>,
    pub gets: usize,
}

pub type Shared = Arc<Mutex<Api>>;

pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    address: String,
}

impl Server {
    pub fn start(address: &str, api: &Shared) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let app =
            Router::new().route("/api/v1/nodes/{name}", get(read).patch(write)).with_state(Arc::clone(api));
        let address = address.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind(&address).await.unwrap();
                bound.send(listener.local_addr().unwrap().to_string()).unwrap();
                tokio::select! { _ = axum::serve(listener, app) => {}, _ = stopped => {} }
            });
        });
        let address = is_bound.recv_timeout(DEADLINE).unwrap();
        Self { stop: Some(stop), thread: Some(thread), address }
    }

    pub fn kubeconfig(&self, dir: &std::path::Path) -> PathBuf {
        let path = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub fn stop(mut self) -> String {
        self.end();
        self.address.clone()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn status(code: u16) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "as told", "reason": "Test", "code": code});
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

fn node(api: &Api) -> Response {
    let annotations: HashMap<_, _> = api.annotation.iter().map(|text| (ANNOTATION, text)).collect();
    let metadata =
        json!({"name": "node-1", "uid": api.uid, "annotations": annotations, "labels": api.labels});
    Json(json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}))
        .into_response()
}

async fn read(State(api): State<Shared>, Path(name): Path<String>) -> Response {
    let mut api = api.lock().unwrap();
    api.gets += 1;
    if name == "node-1" && !api.uid.is_empty() { node(&api) } else { status(404) }
}

async fn write(
    State(api): State<Shared>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut api = api.lock().unwrap();
    if !api.fail.is_empty() {
        return status(api.fail.remove(0));
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(name, "node-1");
    assert_eq!(headers["content-type"], "application/apply-patch+yaml");
    assert_eq!(query["force"], "true");
    if body["metadata"]["uid"] != json!(api.uid) {
        return status(409);
    }
    if query["fieldManager"] == "fpga-collector-labels" {
        assert!(body["metadata"].get("annotations").is_none());
        let labels: HashMap<String, String> =
            serde_json::from_value(body["metadata"]["labels"].clone()).unwrap();
        // Server-side apply removes what the manager owned and no longer sends.
        for key in std::mem::take(&mut api.owned) {
            api.labels.remove(&key);
        }
        api.owned = labels.keys().cloned().collect();
        api.labels.extend(labels);
        api.labellings += 1;
        return node(&api);
    }
    assert_eq!(query["fieldManager"], "fpga-collector");
    assert!(body["metadata"].get("labels").is_none());
    let text = body["metadata"]["annotations"][ANNOTATION].as_str().unwrap();
    assert!(text.len() <= 4096);
    api.writes.push((Instant::now(), decode(text).unwrap()));
    api.annotation = Some(text.to_owned());
    node(&api)
}

pub fn mk_api() -> Shared {
    Arc::new(Mutex::new(Api { uid: "u1".to_owned(), ..Api::default() }))
}

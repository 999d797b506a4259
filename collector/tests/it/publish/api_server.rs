//! A stand-in for an API server with one node object, which can be read and applied to.

use axum::body::Bytes;
use axum::extract::{Path as UrlPath, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use fpga_board::reuse::published::{NodeReuse, REUSE_ANNOTATION};
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use fpga_test_kit::{Proxy, Server, kubeconfig, status};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The stand-in's node object, the writes to it, and the failures to simulate.
#[derive(Default)]
pub struct Api {
    pub uid: String,
    pub annotation: Option<String>,
    /// All labels; `owned` has the keys of those that the collector set.
    pub labels: HashMap<String, String>,
    pub owned: Vec<String>,
    pub labellings: usize,
    pub writes: Vec<NodeState>,
    /// When each of the writes arrived.
    pub times: Vec<Instant>,
    pub fail: Vec<u16>,
    pub gets: usize,
}

pub type Shared = Arc<Mutex<Api>>;

/// Serves `api` at `address`; port 0 takes a free one.
pub fn serve(address: &str, api: &Shared) -> Server {
    let router =
        Router::new().route("/api/v1/nodes/{name}", get(read).patch(write)).with_state(Arc::clone(api));
    Server::tcp(address, router)
}

/// Writes a kubeconfig for `server` into `dir`.
pub fn write_kubeconfig(server: &Server, dir: &Path) -> PathBuf {
    let path = dir.join("kubeconfig");
    server.write_kubeconfig(&path);
    path
}

/// A proxy to an API server that is away until the proxy is redirected, and a kubeconfig in `dir`. No other process gets the
/// proxy's port meanwhile.
pub fn away(dir: &Path) -> (Proxy, PathBuf) {
    let proxy = Proxy::to(&format!("unix:{}", dir.join("no-api-server").display()), &[]);
    let path = dir.join("kubeconfig");
    std::fs::write(&path, kubeconfig(&format!("http://{}", proxy.address()))).unwrap();
    (proxy, path)
}

fn refuse(code: u16) -> Response {
    status(code, "as told")
}

fn node(api: &Api) -> Response {
    let annotations: HashMap<_, _> = api.annotation.iter().map(|text| (ANNOTATION, text)).collect();
    let metadata =
        json!({"name": "node-1", "uid": api.uid, "annotations": annotations, "labels": api.labels});
    Json(json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}))
        .into_response()
}

async fn read(State(api): State<Shared>, UrlPath(name): UrlPath<String>) -> Response {
    let mut api = api.lock().unwrap();
    api.gets += 1;
    if name == "node-1" && !api.uid.is_empty() { node(&api) } else { refuse(404) }
}

async fn write(
    State(api): State<Shared>,
    UrlPath(name): UrlPath<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut api = api.lock().unwrap();
    if !api.fail.is_empty() {
        return refuse(api.fail.remove(0));
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(name, "node-1");
    assert_eq!(headers["content-type"], "application/apply-patch+yaml");
    assert_eq!(query["force"], "true");
    if body["metadata"]["uid"] != json!(api.uid) {
        return refuse(409);
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
    let reuse = body["metadata"]["annotations"][REUSE_ANNOTATION].as_str().unwrap();
    assert!(NodeReuse::parse(reuse).is_some(), "{reuse}");
    api.writes.push(decode(text).unwrap());
    api.times.push(Instant::now());
    api.annotation = Some(text.to_owned());
    node(&api)
}

pub fn mk_api() -> Shared {
    Arc::new(Mutex::new(Api { uid: "u1".to_owned(), ..Api::default() }))
}

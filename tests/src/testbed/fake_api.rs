//! The part of an API server that an extender watches: 5,000 nodes whose states change a thousand times a second, and
//! unchanging pods. A real API server would use the whole machine at that rate, but the extender is what is measured.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use fpga_test_kit::{Server, status};
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

/// Changes are sent in this many batches per second.
const CROWDS_PER_SECOND: u32 = 50;
/// Number of batches by which a slow watcher may be behind; a watcher that is further behind must list again.
const BEHIND: usize = 100_000;

/// A running fake API server, which ends when it is dropped.
#[derive(Debug)]
pub struct FakeApi {
    server: Server,
    cluster: Arc<Cluster>,
}

#[derive(Debug)]
struct Cluster {
    nodes: usize,
    pods: usize,
    changes: AtomicU64,
    per_second: AtomicU32,
    watchers: broadcast::Sender<Bytes>,
}

impl FakeApi {
    /// Serves this many nodes and FPGA pods, on a thread of its own.
    #[must_use]
    pub fn start(nodes: usize, pods: usize) -> Self {
        let watchers = broadcast::Sender::new(BEHIND);
        let (changes, per_second) = (AtomicU64::new(0), AtomicU32::new(0));
        let cluster = Arc::new(Cluster { nodes, pods, changes, per_second, watchers });
        let router = Router::new()
            .route("/api/v1/nodes", get(list_or_watch_nodes))
            .route("/api/v1/pods", get(list_or_watch_pods))
            .fallback(not_found)
            .with_state(Arc::clone(&cluster));
        let changing = Arc::clone(&cluster);
        let server = Server::tcp_beside("127.0.0.1:0", router, async move { changing.keep_changing().await });
        Self { server, cluster }
    }

    /// Writes a kubeconfig for the fake API server.
    pub fn write_kubeconfig(&self, path: &Path) {
        self.server.write_kubeconfig(path);
    }

    /// Sets the number of states that change per second, node after node.
    pub fn change(&self, per_second: u32) {
        self.cluster.per_second.store(per_second, Ordering::Relaxed);
    }

    /// Number of changed states so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.cluster.changes.load(Ordering::Relaxed)
    }
}

impl Cluster {
    async fn keep_changing(&self) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / CROWDS_PER_SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            ticks.tick().await;
            let mut lines = Vec::new();
            for _ in 0..self.per_second.load(Ordering::Relaxed) / CROWDS_PER_SECOND {
                let change = self.changes.fetch_add(1, Ordering::Relaxed);
                let index = usize::try_from(change).unwrap_or_default() % self.nodes;
                let node = node(index, 2 + change);
                lines.extend(json!({"type": "MODIFIED", "object": node}).to_string().into_bytes());
                lines.push(b'\n');
            }
            // Sending fails when nobody watches.
            let _ = self.watchers.send(lines.into());
        }
    }
}

async fn not_found() -> Response {
    status(404, "not found")
}

fn is_watch(query: Option<&str>) -> bool {
    query
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch=")))
}

/// The numeric value of `key` in a query, such as `limit` and `continue` of the fake API server.
fn number(query: Option<&str>, key: &str) -> Option<usize> {
    let value = |pair: &str| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok();
    query?.split('&').find_map(value)
}

fn is_json(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

async fn list_or_watch_nodes(State(cluster): State<Arc<Cluster>>, RawQuery(query): RawQuery) -> Response {
    if !is_watch(query.as_deref()) {
        let kind = ("PartialObjectMetadataList", "meta.k8s.io/v1");
        return list(kind, query.as_deref(), cluster.nodes, |index| node(index, 1));
    }
    let receiver = cluster.watchers.subscribe();
    let lines = futures::stream::unfold(receiver, |mut receiver| async move {
        // As with a real API server, the watch of a client that is too far behind ends.
        let lines = receiver.recv().await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(lines), receiver))
    });
    is_json(Body::from_stream(lines))
}

async fn list_or_watch_pods(State(cluster): State<Arc<Cluster>>, RawQuery(query): RawQuery) -> Response {
    if !is_watch(query.as_deref()) {
        return list(("PodList", "v1"), query.as_deref(), cluster.pods, |index| pod(index, cluster.nodes));
    }
    let nothing = futures::stream::pending::<Result<Bytes, std::convert::Infallible>>();
    is_json(Body::from_stream(nothing.boxed()))
}

/// A page of `count` objects with the requested size: clients of a real API server read long lists in pages.
fn list(
    (kind, version): (&str, &str),
    query: Option<&str>,
    count: usize,
    object: impl Fn(usize) -> Value,
) -> Response {
    let begin = number(query, "continue").unwrap_or(0).min(count);
    let end = number(query, "limit").map_or(count, |limit| count.min(begin.saturating_add(limit.max(1))));
    let items: Vec<Value> = (begin..end).map(object).collect();
    let next = if end < count { end.to_string() } else { String::new() };
    let metadata = json!({"resourceVersion": "1", "continue": next});
    is_json(json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}).to_string())
}

/// A node's metadata with the state of two boards, eight bitstreams and thirty time slices.
fn node(index: usize, seq: u64) -> Value {
    let name = format!("node-{index:05}");
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": name, "uid": format!("5b9d7a2e-8c2f-4a56-9a55-{index:012}"), "resourceVersion": seq.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "fpga-scheduling.io/fpga-vendor": "intel"},
            "annotations": {(fpga_core::node_state::ANNOTATION): state(index, seq).to_string()},
        },
    })
}

fn state(index: usize, seq: u64) -> Value {
    let turn = usize::try_from(seq).unwrap_or_default();
    let usage: Vec<_> = (0..30).map(|slice| (index * 31 + slice * 7_919 + turn * 13) % 40_000).collect();
    let reconfiguration: Vec<_> = (0..30).map(|slice| (index * 17 + slice * 104_729) % 900).collect();
    let bitstreams: Vec<_> = (0..8)
        .map(|slot| {
            let kind = (index + slot) % 50;
            json!({"name": format!("accelerator-{kind}"), "digest": format!("{kind:032x}"), "lastUsedAgoMs": slot * 1_000})
        })
        .collect();
    let device = |id: &str, loaded: [u32; 4]| {
        json!({"id": id, "vendor": "intel", "platform": "Intel FPGA", "board": "a10", "shell": "1.2", "slots": 4,
            "loaded": loaded, "usageMs": 1, "reconfigurationMs": 1, "queued": 0, "healthy": true})
    };
    json!({
        "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 3_600_000, "measuredAtMs": seq, "windowMs": 300_000,
        "usageMs": usage.iter().sum::<usize>(), "reconfigurationMs": reconfiguration.iter().sum::<usize>(),
        "devices": [device("dm0", [0, 1, 2, 3]), device("dm1", [4, 5, 6, 7])], "bitstreams": bitstreams,
        "window": {"bucketMs": 10_000, "usageMs": usage, "reconfigurationMs": reconfiguration}, "truncated": 0,
    })
}

fn pod(index: usize, nodes: usize) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": format!("pod-{index}"), "namespace": "default", "uid": format!("8f4b1c5e-3d2a-4f6b-9c8d-{index:012}"),
            "labels": {"fpga-scheduling.io/fpga-vendor": "intel"},
            "annotations": {"fpga-scheduling.io/bitstreams": format!("accelerator-{}", index % 50)},
        },
        "spec": {"nodeName": format!("node-{:05}", index % nodes), "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_states_can_be_read_and_differ() {
        let [old, new] = [1, 2].map(|seq| fpga_core::node_state::decode(&state(7, seq).to_string()).unwrap());
        assert_eq!((old.devices.len(), old.bitstreams.len()), (2, 8));
        assert!(new.version() > old.version() && new.usage != old.usage);
    }

    #[test]
    fn a_watch_is_told_from_a_list() {
        assert!(is_watch(Some("&watch=true&timeoutSeconds=290")));
        assert!(!is_watch(Some("&limit=500")) && !is_watch(None));
        assert_eq!(number(Some("&limit=500&continue=1000"), "continue"), Some(1_000));
        assert_eq!((number(Some("&limit=500"), "continue"), number(None, "limit")), (None, None));
    }
}

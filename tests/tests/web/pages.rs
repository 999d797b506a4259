//! What the tests of the page share: states, and a page that shows them.

use fpga_tests::testbed::browser::Browser;
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::stand_in_site::{Answers, StandInSite};
use fpga_tests::testbed::web::{Parts, Web};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// Names that are in turn the bitstreams of the boards.
pub const BITSTREAMS: [&str; 10] =
    ["sobel", "matrix-product", "sha256", "black-scholes", "fft", "aes", "resize", "gzip", "kmeans", "bert"];

/// Port of OTLP over HTTP.
const OTLP_PORT: u16 = 4318;

/// A page that shows the answers of a stand-in, in a browser.
pub struct Page {
    pub site: StandInSite,
    pub web: Web,
    pub browser: Browser,
    /// Where the page takes traces.
    pub otlp: String,
    _network: Network,
    dir: TempDir,
}

impl Page {
    /// Opens a page that shows these answers.
    pub async fn open(answers: Answers) -> Self {
        Self::open_with(answers, Parts::default()).await
    }

    /// Opens a page that shows these answers, but asks the parts that `parts` names.
    pub async fn open_with(answers: Answers, parts: Parts) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let site = StandInSite::start(answers).await.unwrap();
        let kubeconfig = site.kubeconfig(dir.path()).unwrap();
        let network = Network::claim().unwrap();
        let otlp = format!("{}:{OTLP_PORT}", network.control_plane());
        let of_site = Self::parts(&site);
        let parts = Parts {
            otlp_listen: Some(otlp.clone()),
            extender: parts.extender.or(of_site.extender),
            picker: of_site.picker,
            ..parts
        };
        let web = Web::start_with(&kubeconfig, &dir.path().join("log"), &parts).await.unwrap();
        let mut browser = Browser::start(1400, 860).await.unwrap();
        browser.open(web.url()).await.unwrap();
        Self { site, web, browser, otlp, _network: network, dir }
    }

    fn parts(site: &StandInSite) -> Parts {
        Parts { extender: Some(site.url()), picker: Some(site.url()), ..Parts::default() }
    }

    /// Kills the page's server.
    pub async fn kill_server(&mut self) {
        self.web.process().kill().await;
    }

    /// Starts another server at the port of the page's, which was killed.
    pub async fn start_another_server(&mut self) {
        let port = self.web.url().split(['/', ':']).find(|part| part.parse::<u16>().is_ok());
        let parts = Parts { port: port.map(str::to_owned), ..Self::parts(&self.site) };
        let kubeconfig = self.site.kubeconfig(self.dir.path()).unwrap();
        self.web = Web::start_with(&kubeconfig, &self.dir.path().join("another-log"), &parts).await.unwrap();
    }

    /// Goes to a view by its address.
    pub async fn go(&mut self, view: &str) {
        self.browser.value(&format!("location.hash = {}", json!(format!("#/{view}")))).await.unwrap();
    }
}

/// The folder for pictures that people look at.
pub fn pictures() -> PathBuf {
    let folder = fpga_tests::testbed::programs::repository().join("build/web");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A node as the extender tells of it, with boards that have these bitstreams in their slots.
pub fn node(name: &str, seq: u64, boards: &[&[&str]]) -> Value {
    json!({"name": name, "freshness": "fresh", "source": "stream",
           "known": {"ageMs": 300, "version": {}, "usageMs": 300_000, "reconfigurationMs": 9_000,
                     "state": state(seq, boards)}})
}

/// The state of a node with boards that have these bitstreams in their slots.
pub fn state(seq: u64, boards: &[&[&str]]) -> Value {
    let mut names: Vec<&str> = boards.concat();
    names.sort_unstable();
    names.dedup();
    let index = |bitstream: &str| names.iter().position(|name| *name == bitstream);
    let devices = boards.iter().enumerate().map(|(number, holds)| {
        let loaded: Vec<_> = holds.iter().map(|bitstream| index(bitstream)).collect();
        json!({"id": format!("a10-{number}"), "vendor": "intel", "board": "a10", "shell": "1.2", "slots": 4, "loaded": loaded,
               "usageMs": 300_000 + 40_000 * number, "reconfigurationMs": 9_000, "queued": seq % 3, "healthy": true})
    });
    let slices: Vec<u64> = (0..30).map(|slice| (slice * 7 + seq) % 11 * 3_000).collect();
    json!({
        "boot": 1, "seq": seq, "heartbeatMs": 60_000, "measuredAtMs": 1, "windowMs": 300_000, "usageMs": 0,
        "reconfigurationMs": 0, "devices": devices.collect::<Vec<_>>(),
        "bitstreams": names.iter().map(|name| json!({"name": name, "lastUsedAgoMs": 0})).collect::<Vec<_>>(),
        "window": {"bucketMs": 10_000, "usageMs": slices, "reconfigurationMs": []},
    })
}

/// A pod that wants a bitstream, on a node's board if it has one.
pub fn pod(namespace: &str, name: &str, bitstream: &str, node: Option<&str>) -> Value {
    let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 bitstream is not valid on the FPGA device."}]);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1",
                     "creationTimestamp": "2026-01-01T00:00:00Z",
                     "annotations": {"fpga-scheduling.io/bitstreams": bitstream, "fpga-scheduling.io/boards": "a10-0"}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" },
                   "conditions": if node.is_some() { ready } else { waits }},
    })
}

/// A decision for a pod between these nodes, the first of which is best.
pub fn decision(namespace: &str, name: &str, at_ms: u64, nodes: &[&str]) -> Value {
    let best: Vec<Value> = nodes
        .iter()
        .take(3)
        .enumerate()
        .map(|(rank, node)| json!({"node": node, "score": 9 - rank}))
        .collect();
    json!({"namespace": namespace, "name": name, "uid": name, "atMs": at_ms, "bitstreams": ["sobel"],
           "candidates": nodes.len() + 1, "passed": nodes.len(), "rejections": {"vendor": 1}, "best": best})
}

/// The explanation of a decision for a pod between these nodes, the first of which is best.
pub fn explanation(namespace: &str, name: &str, nodes: &[&str]) -> Value {
    let term = |value: f64| json!({"value": value, "basis": "measured"});
    let scores = nodes.iter().enumerate().map(|(rank, node)| {
        let locality = if rank == 0 { 1.0 } else { 0.0 };
        json!({"node": node, "source": "stream", "score": 9 - rank.min(9), "mean": 0.8, "freshness": "fresh",
               "measured": {"usageMs": 1000 * rank, "reconfigurationMs": 10, "slots": 4, "ageMs": 300}, "capped": "no",
               "locality": term(locality), "usage": term(0.75), "reconfiguration": term(0.5)})
    });
    let passed = nodes.iter().map(|node| json!({"node": node, "source": "stream", "rejection": null}));
    let filtered: Vec<Value> =
        passed.chain([json!({"node": "other-vendor", "source": "stream", "rejection": "vendor"})]).collect();
    json!({
        "rules": {"weights": {"locality": 1.0, "usage": 2.0, "reconfiguration": 2.0}, "maxScore": 10, "stale": {},
                  "antiHerd": "on"},
        "namespace": namespace, "name": name, "uid": name, "requirement": {},
        "filter": {"atMs": 1_700_000_000_000_u64, "nodes": filtered},
        "prioritize": {"atMs": 1_700_000_000_001_u64, "nodes": scores.collect::<Vec<_>>()},
    })
}

/// A function whose only replica is on a node.
pub fn function(namespace: &str, name: &str, bitstream: &str, node: &str) -> Value {
    let replica = json!({"address": "10.0.0.1:8080", "node": node, "board": "a10-0", "fresh": true, "inFlight": 2,
        "slots": 4, "idleWithBitstream": 1, "idle": 1, "waiting": 0});
    json!({"namespace": namespace, "name": name, "bitstream": bitstream, "inFlight": 2, "perSecond": 3.5,
           "meanInFlight": 0.4, "recentInFlight": 0.4, "recommendedReplicas": 2, "replicas": [replica]})
}

//! The annotation, as an API server sees it being written: a stand-in on the loopback that fails, forgets and comes back. The same
//! against a real API server is in the end-to-end test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use common::{Collector, DEADLINE, event, now_ms, wait_until};
use fpga_core::device::{DeviceStatus, Health};
use fpga_core::event::Event;
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The stand-in's node object, what was written to it, and how it is to fail.
#[derive(Default)]
struct Api {
    uid: String,
    annotation: Option<String>,
    /// All labels, and those that the collector owns.
    labels: HashMap<String, String>,
    owned: Vec<String>,
    labellings: usize,
    writes: Vec<(Instant, NodeState)>,
    fail: Vec<u16>,
    gets: usize,
}

type Shared = Arc<Mutex<Api>>;

struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    address: String,
}

impl Server {
    fn start(address: &str, api: &Shared) -> Self {
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

    fn kubeconfig(&self, dir: &std::path::Path) -> PathBuf {
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

    fn stop(mut self) -> String {
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
        // As server-side apply has it: what the manager owned and no longer says goes.
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

fn mk_api() -> Shared {
    Arc::new(Mutex::new(Api { uid: "u1".to_owned(), ..Api::default() }))
}

fn start(dir: &std::path::Path, server: &Server, flags: &[&str]) -> Collector {
    spawn(dir, server, Command::new(env!("CARGO_BIN_EXE_fpga-collector")), flags)
}

/// Starts a collector through `command`, which ends in the program.
fn spawn(dir: &std::path::Path, server: &Server, command: Command, flags: &[&str]) -> Collector {
    let kubeconfig = server.kubeconfig(dir);
    let mut args = vec!["--kubeconfig", kubeconfig.to_str().unwrap()];
    args.extend(flags);
    Collector::spawn(dir, command, &args)
}

fn last(api: &Shared) -> Option<NodeState> {
    api.lock().unwrap().writes.last().map(|(_, state)| state.clone())
}

#[test]
fn the_first_state_a_new_board_and_the_last_word_are_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    // So long that only what is urgent is written.
    let flags = ["--min-write-interval", "10m", "--heartbeat", "30m"];
    let collector = start(dir.path(), &server, &flags);
    wait_until("the first state", || last(&api).is_some());
    collector.put_board();
    wait_until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    for seq in 1..=50 {
        collector.post(&event(1, seq, 0));
    }
    let writes = api.lock().unwrap().writes.len();
    // The board's write may have had its echo already.
    assert!(writes <= 3, "events of a known board wait");
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(last(&api).unwrap().usage.0, 50);
    let api = api.lock().unwrap();
    assert!(api.writes.iter().all(|(_, state)| state.boot == 1));
    assert!(api.writes.windows(2).all(|pair| pair[0].1.version() < pair[1].1.version()));
    assert_eq!(api.gets, 1);
}

fn holds_one(state: &NodeState) -> bool {
    state.devices.first().is_some_and(|device| device.loaded.len() == 1)
}

fn holds_two(state: &NodeState) -> bool {
    state.devices.first().is_some_and(|device| device.loaded.len() == 2)
}

#[test]
fn a_bitstream_that_is_loaded_is_written_at_once_and_the_next_one_waits() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let interval = Duration::from_secs(2);
    let collector = start(dir.path(), &server, &["--min-write-interval", "2s", "--heartbeat", "30m"]);
    let put = |names: &[&str]| {
        let mk = |name: &&str| json!({"id": name, "digest": format!("sha256:{}", name.repeat(64))});
        let loaded: Vec<_> = names.iter().map(mk).collect();
        let body = json!({"id": "dm0", "vendor": "intel", "slots": 2, "loaded": loaded, "health": "healthy"});
        let answer = collector.request("PUT", "/v1/devices/dm0", body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    let loaded = || last(&api).and_then(|state| state.devices.first().map(|device| device.loaded.len()));
    put(&[]);
    wait_until("the board", || loaded() == Some(0));
    put(&["a"]);
    wait_until("the bitstream", || loaded() == Some(1));
    // And once more, for pods that were tried before the extender knew.
    let told_twice =
        |api: &Shared| api.lock().unwrap().writes.iter().filter(|(_, state)| holds_one(state)).count() == 2;
    wait_until("its echo", || told_twice(&api));
    let writes = api.lock().unwrap().writes.len();
    let first = api.lock().unwrap().writes.iter().find(|(_, state)| holds_one(state)).unwrap().0;
    put(&["a", "b"]);
    wait_until("the next bitstream", || loaded() == Some(2));
    let api = api.lock().unwrap();
    let next = &api.writes[writes..];
    assert!(holds_two(&next[0].1), "nothing is written before");
    // An interval for each of the two times that the first was written.
    assert!(next[0].0 - first >= 2 * interval, "{:?}", next[0].0 - first);
}

#[test]
fn changes_are_written_no_more_often_than_the_interval_and_the_heart_beats() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let flags = ["--min-write-interval", "400ms", "--heartbeat", "1s", "--window", "10s"];
    let collector = start(dir.path(), &server, &flags);
    collector.put_board();
    wait_until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    let from = api.lock().unwrap().writes.len() - 1;
    let mut seq = 0;
    wait_until("six writes under load", || {
        seq += 1;
        let busy = event(1, seq, 0).replace("\"duration_ms\":1,", "\"duration_ms\":5000,");
        collector.post(&busy);
        api.lock().unwrap().writes.len() > from + 6
    });
    let writes = api.lock().unwrap().writes[from..].to_vec();
    for pair in writes.windows(2) {
        let apart = pair[1].0 - pair[0].0;
        assert!(apart.as_millis() >= 350, "{apart:?}");
    }
    let count = api.lock().unwrap().writes.len();
    wait_until("the heart beats without load", || api.lock().unwrap().writes.len() > count + 3);
    // Each has a number of its own, heartbeats too: a repeated one would say nothing of its author's health.
    let api = api.lock().unwrap();
    assert!(api.writes.windows(2).all(|pair| pair[0].1.version() < pair[1].1.version()));
}

#[test]
fn while_the_api_server_is_away_events_are_acknowledged_and_published_later() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let away = Server::start("127.0.0.1:0", &api);
    let kubeconfig = away.kubeconfig(dir.path());
    let address = away.stop();
    let collector = Collector::start_with(dir.path(), &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert_eq!(collector.post(&event(1, 1, 0)).status, 200);
    let unreachable = "fpga_collector_publications_total{outcome=\"unreachable\"}";
    wait_until("a failure is counted", || collector.metric(unreachable) > 0.0);
    assert_eq!(collector.request("GET", "/readyz", b"").status, 200);
    let _back = Server::start(&address, &api);
    wait_until("the event is published", || last(&api).is_some_and(|state| state.usage.0 == 1));
}

#[test]
fn refusals_of_the_api_server_are_counted_by_kind_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().fail = vec![429, 500, 403];
    let server = Server::start("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &[]);
    wait_until("it is written", || last(&api).is_some());
    for outcome in ["throttled", "server_error", "forbidden"] {
        let name = format!("fpga_collector_publications_total{{outcome=\"{outcome}\"}}");
        assert_eq!(collector.metric(&name), 1.0, "{outcome}");
    }
}

#[test]
fn a_node_that_was_made_anew_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &["--min-write-interval", "100ms", "--heartbeat", "1s"]);
    wait_until("the first state", || last(&api).is_some());
    let writes = {
        let mut api = api.lock().unwrap();
        (api.uid, api.annotation) = ("u2".to_owned(), None);
        api.writes.len()
    };
    wait_until("the new node has it", || api.lock().unwrap().writes.len() > writes);
    assert!(collector.metric("fpga_collector_publications_total{outcome=\"conflict\"}") >= 1.0);
}

#[test]
fn boots_count_on_from_the_annotation_and_without_a_checkpoint_it_brings_the_window_back() {
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let first_dir = tempfile::tempdir().unwrap();
    let first = start(first_dir.path(), &server, &[]);
    first.put_board();
    for seq in 1..=40 {
        first.post(&event(1, seq, 100));
    }
    assert_eq!(first.terminate().code(), Some(0));
    let published = last(&api).unwrap();
    assert_eq!((published.boot, published.usage.0), (1, 40));
    let ago = now_ms() - published.measured_at.0;

    // Another disk, as after the loss of the first.
    let second_dir = tempfile::tempdir().unwrap();
    let second = start(second_dir.path(), &server, &[]);
    wait_until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(second.usage(), 40, "{ago} ms later");
    assert_eq!(second.state()["bitstreams"][0]["name"], json!("sobel"));
    second.kill();

    // Killed and started on its own checkpoint: the annotation adds nothing to it.
    let third = start(second_dir.path(), &server, &[]);
    wait_until("the boot after that is published", || last(&api).is_some_and(|state| state.boot == 3));
    assert_eq!(third.usage(), 40);
}

#[test]
fn where_the_checkpoint_is_damaged_the_annotation_brings_the_window_back() {
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), &server, &["--min-write-interval", "100ms", "--heartbeat", "1s"]);
    first.put_board();
    for seq in 1..=40 {
        first.post(&event(1, seq, 100));
    }
    wait_until("it is published", || last(&api).is_some_and(|state| state.usage.0 == 40));
    first.kill();
    let snapshot = dir.path().join("checkpoint/snapshot");
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&snapshot, bytes).unwrap();
    let second = start(dir.path(), &server, &[]);
    wait_until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(second.usage(), 40);
    assert_eq!(second.metric("fpga_collector_recovered_damaged_snapshots_total"), 1.0);
    assert!(dir.path().join("checkpoint/snapshot.damaged").exists());
}

#[test]
fn where_the_checkpoint_is_lost_a_device_that_reports_first_does_not_hide_the_annotation() {
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let first_dir = tempfile::tempdir().unwrap();
    let first = start(first_dir.path(), &server, &[]);
    first.put_board();
    for seq in 1..=40 {
        first.post(&event(1, seq, 100));
    }
    assert_eq!(first.terminate().code(), Some(0));

    // The API server is away until the device has reported.
    let second_dir = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(second_dir.path());
    let address = server.stop();
    let second = Collector::start_with(second_dir.path(), &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    second.put_board();
    let _back = Server::start(&address, &api);
    wait_until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(last(&api).unwrap().usage.0, 40);
}

/// How large a file the process may write from now on: none, or any.
fn limit_file_size(collector: &Collector, limit: &str) {
    let pid = collector.pid().to_string();
    // The soft limit alone: that one may be raised again.
    let limit = format!("--fsize={limit}:");
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(status.expect("prlimit of util-linux is needed").success());
}

#[test]
fn a_full_disk_takes_no_healthy_board_out_of_service() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#, env!("CARGO_BIN_EXE_fpga-collector")]);
    let flags = ["--device-timeout", "1s", "--min-write-interval", "100ms", "--heartbeat", "1s"];
    let collector = spawn(dir.path(), &server, command, &flags);

    let reporter = fpga_hook::Reporter::start(fpga_hook::Config {
        device_interval: Duration::from_millis(100),
        ..fpga_hook::Config::new(collector.endpoint())
    });
    let reporter = reporter.unwrap();
    let board = |id: &str, queued| DeviceStatus {
        id: id.to_owned(),
        vendor: "intel".to_owned(),
        platform: String::new(),
        board: String::new(),
        shell: String::new(),
        slots: 4,
        loaded: Vec::new(),
        queued,
        health: Health::Healthy,
    };
    let published = |id: &str| last(&api)?.devices.into_iter().find(|device| device.id == id);
    reporter.device(board("reports", 0));
    reporter.flush(DEADLINE).unwrap();
    put_device(&collector, "silent", "s");
    wait_until("both boards", || published("reports").is_some() && published("silent").is_some());

    limit_file_size(&collector, "0");
    reporter.report(serde_json::from_str::<Event>(&event(1, 1, 0)).unwrap());
    wait_until("nothing is acknowledged", || collector.request("GET", "/readyz", b"").status == 503);
    // This one is not heard of, so the time after which a silent board is unhealthy passes while the disk is full.
    wait_until("the silent board is unhealthy", || {
        published("silent").is_some_and(|device| device.health == Health::Unhealthy)
    });
    let failures = || collector.metric("fpga_collector_checkpoint_failures_total");
    let before = failures();
    wait_until("the disk is full for some time", || failures() >= before + 3.0);
    assert_eq!(published("reports").unwrap().health, Health::Healthy);
    // What changes is published, too.
    reporter.device(board("reports", 7));
    reporter.device(board("new", 0));
    wait_until("the new board and the queue", || {
        published("new").is_some() && published("reports").is_some_and(|device| device.queued == 7)
    });
    assert_eq!(collector.request("DELETE", "/v1/devices/silent", b"").status, 200);
    wait_until("the board that left", || published("silent").is_none());
    assert_eq!(reporter.stats().sent, 0);
    let journals = std::fs::read_dir(dir.path().join("checkpoint")).unwrap();
    let names = journals.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.filter(|name| name.starts_with("journal-")).count() <= 2);

    limit_file_size(&collector, "unlimited");
    reporter.flush(DEADLINE).unwrap();
    assert_eq!((collector.usage(), reporter.stats().sent), (1, 1));
    collector.kill();
    let again = start(dir.path(), &server, &flags);
    assert_eq!(again.usage(), 1);
    let state = again.state();
    let devices = state["devices"].as_array().unwrap();
    assert!(devices.iter().any(|device| device["id"] == "new"), "the snapshot has what changed meanwhile");
}

#[test]
fn a_collector_that_starts_on_a_full_disk_publishes_its_boards_and_acknowledges_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let first = start(dir.path(), &server, &[]);
    first.put_board();
    for seq in 1..=40 {
        first.post(&event(1, seq, 100));
    }
    assert_eq!(first.terminate().code(), Some(0));

    // Files of at most 512 bytes: a snapshot is longer.
    let mut command = Command::new("sh");
    let limited = r#"trap "" XFSZ; ulimit -S -f 1; exec "$0" "$@""#;
    command.args(["-c", limited, env!("CARGO_BIN_EXE_fpga-collector")]);
    let second = spawn(dir.path(), &server, command, &[]);
    wait_until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    let state = last(&api).unwrap();
    assert_eq!((state.usage.0, state.devices[0].health), (40, Health::Healthy));
    assert_eq!(second.post(&event(1, 41, 0)).status, 503);

    limit_file_size(&second, "unlimited");
    wait_until("events are taken again", || second.post(&event(1, 41, 0)).status == 200);
    second.kill();
    assert_eq!(start(dir.path(), &server, &[]).usage(), 41);
}

#[test]
fn garbage_in_the_annotation_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().annotation = Some("{\"v\":1,\"boot\":".to_owned());
    let server = Server::start("127.0.0.1:0", &api);
    let _collector = start(dir.path(), &server, &[]);
    wait_until("it is replaced", || last(&api).is_some_and(|state| state.boot == 1));
}

fn put_device(collector: &Collector, id: &str, shell: &str) {
    let body = json!({"id": id, "vendor": "intel", "board": "Arria 10", "shell": shell, "slots": 1, "health": "healthy"});
    let answer = collector.request("PUT", &format!("/v1/devices/{id}"), body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn asked_to_label_the_node_it_says_what_all_devices_share_and_takes_it_back_when_they_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().labels.insert("zone".to_owned(), "a".to_owned());
    let server = Server::start("127.0.0.1:0", &api);
    let labels = || {
        let mut labels: Vec<_> = api.lock().unwrap().labels.clone().into_iter().collect();
        labels.sort();
        labels
    };
    let mk = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
    };
    let (vendor, shell) = (("fpga-scheduling.io/fpga-vendor", "intel"), "fpga-scheduling.io/shell-version");
    let collector = start(dir.path(), &server, &["--label-node", "--device-timeout", "1500ms"]);
    put_device(&collector, "dm0", "1.2");
    // The board's name has a blank, which no label may have.
    wait_until("the labels", || labels() == mk(&[vendor, (shell, "1.2"), ("zone", "a")]));
    put_device(&collector, "dm1", "1.3");
    wait_until("the vendor only", || labels() == mk(&[vendor, ("zone", "a")]));
    assert_eq!(api.lock().unwrap().labellings, 2);

    // A collector that ends leaves the labels, and the next one knows them for its own.
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(labels(), mk(&[vendor, ("zone", "a")]));
    let collector = start(dir.path(), &server, &["--label-node", "--device-timeout", "1500ms"]);
    for id in ["dm0", "dm1"] {
        assert_eq!(collector.request("DELETE", &format!("/v1/devices/{id}"), b"").status, 200);
    }
    wait_until("no label of ours", || labels() == mk(&[("zone", "a")]));
    // The API server has the write before the collector has its answer.
    wait_until("the count of writes", || {
        collector.metric("fpga_collector_labellings_total{outcome=\"written\"}") >= 1.0
    });
}

#[test]
fn unasked_it_labels_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = Server::start("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &[]);
    put_device(&collector, "dm0", "1.2");
    wait_until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(api.lock().unwrap().labellings, 0);
}

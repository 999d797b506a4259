//! Writes of the annotation, as an API server sees them: a stand-in on the loopback that fails, loses the node and
//! comes back. The end-to-end test has the same against a real API server.

mod api_server;
mod full_disk;
mod labels;
mod recovery;

use crate::common::{PROGRAM, event, start_collector_with};
use api_server::{Shared, away, mk_api, serve, write_kubeconfig};
use fpga_core::node_state::NodeState;
use fpga_test_kit::{Collector, Server, until};
use serde_json::json;
use std::process::Command;
use std::time::Duration;

fn start(dir: &std::path::Path, server: &Server, flags: &[&str]) -> Collector {
    spawn(dir, server, Command::new(PROGRAM), flags)
}

/// Starts a collector by `command`, whose last argument is the program.
fn spawn(dir: &std::path::Path, server: &Server, command: Command, flags: &[&str]) -> Collector {
    let kubeconfig = write_kubeconfig(server, dir);
    let mut args = vec!["--kubeconfig", kubeconfig.to_str().unwrap()];
    args.extend(flags);
    Collector::start(command, dir, &args)
}

/// Starts a collector and reports 40 ms of a board's time to it.
fn start_busy(dir: &std::path::Path, server: &Server, flags: &[&str]) -> Collector {
    let collector = start(dir, server, flags);
    collector.put_board();
    for seq in 1..=40 {
        collector.post(&event(1, seq, 100));
    }
    collector
}

fn last(api: &Shared) -> Option<NodeState> {
    api.lock().unwrap().writes.last().cloned()
}

fn put_device(collector: &Collector, id: &str, shell: &str) {
    let body = json!({"id": id, "vendor": "intel", "board": "Arria 10", "shell": shell, "slots": 1, "health": "healthy"});
    let answer = collector.request("PUT", &format!("/v1/devices/{id}"), body.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn the_first_state_a_new_board_and_the_last_word_are_written_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    // Intervals so long that only urgent writes happen.
    let flags = ["--min-write-interval", "10m", "--heartbeat", "30m"];
    let collector = start(dir.path(), &server, &flags);
    until("the first state", || last(&api).is_some());
    collector.put_board();
    until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    for seq in 1..=50 {
        collector.post(&event(1, seq, 0));
    }
    let writes = api.lock().unwrap().writes.len();
    // The echo of the board's write may have come already.
    assert!(writes <= 3, "events of a known board wait");
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(last(&api).unwrap().usage.0, 50);
    let api = api.lock().unwrap();
    assert!(api.writes.iter().all(|state| state.boot == 1));
    assert!(api.writes.windows(2).all(|pair| pair[0].version() < pair[1].version()));
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
    let server = serve("127.0.0.1:0", &api);
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
    until("the board", || loaded() == Some(0));
    put(&["a"]);
    until("the bitstream", || loaded() == Some(1));
    // The echo, for pods that were tried before the extender knew of the change.
    let told_twice =
        |api: &Shared| api.lock().unwrap().writes.iter().filter(|state| holds_one(state)).count() == 2;
    until("its echo", || told_twice(&api));
    let writes = api.lock().unwrap().writes.len();
    let first = api.lock().unwrap().writes.iter().position(holds_one).unwrap();
    put(&["a", "b"]);
    until("the next bitstream", || loaded() == Some(2));
    let api = api.lock().unwrap();
    let next = &api.writes[writes];
    assert!(holds_two(next), "nothing is written before");
    // One interval for each of the first bitstream's two writes. Each begins after the answer to the write before, and the
    // collector may measure a state some time before its write.
    let apart = api.times[writes] - api.times[first];
    assert!(apart >= 2 * Duration::from_secs(2), "{apart:?}");
}

#[test]
fn changes_are_written_no_more_often_than_the_interval_and_the_heart_beats() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let flags = ["--min-write-interval", "400ms", "--heartbeat", "1s", "--window", "10s"];
    let collector = start(dir.path(), &server, &flags);
    collector.put_board();
    until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    let from = api.lock().unwrap().writes.len() - 1;
    let mut seq = 0;
    until("six writes under load", || {
        seq += 1;
        let busy = event(1, seq, 0).replace("\"duration_ms\":1,", "\"duration_ms\":5000,");
        collector.post(&busy);
        api.lock().unwrap().writes.len() > from + 6
    });
    let times = api.lock().unwrap().times[from..].to_vec();
    for pair in times.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= Duration::from_millis(400), "{apart:?}");
    }
    let count = api.lock().unwrap().writes.len();
    until("the heart beats without load", || api.lock().unwrap().writes.len() > count + 3);
    // Each write has a version of its own, heartbeats as well: a repeated version would not show that the collector
    // lives.
    let api = api.lock().unwrap();
    assert!(api.writes.windows(2).all(|pair| pair[0].version() < pair[1].version()));
}

#[test]
fn while_the_api_server_is_away_events_are_acknowledged_and_published_later() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let (proxy, kubeconfig) = away(dir.path());
    let collector = start_collector_with(dir.path(), &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert_eq!(collector.post(&event(1, 1, 0)).status, 200);
    let unreachable = "fpga_collector_publications_total{outcome=\"unreachable\"}";
    until("a failure is counted", || collector.metric(unreachable) > 0.0);
    assert_eq!(collector.request("GET", "/readyz", b"").status, 200);
    let back = serve("127.0.0.1:0", &api);
    proxy.redirect(back.address());
    until("the event is published", || last(&api).is_some_and(|state| state.usage.0 == 1));
}

#[test]
fn refusals_of_the_api_server_are_counted_by_kind_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().fail = vec![429, 500, 403];
    let server = serve("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &[]);
    until("it is written", || last(&api).is_some());
    for outcome in ["throttled", "server_error", "forbidden"] {
        let name = format!("fpga_collector_publications_total{{outcome=\"{outcome}\"}}");
        assert_eq!(collector.metric(&name), 1.0, "{outcome}");
    }
}

#[test]
fn a_node_that_was_made_anew_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &["--min-write-interval", "100ms", "--heartbeat", "1s"]);
    until("the first state", || last(&api).is_some());
    let writes = {
        let mut api = api.lock().unwrap();
        (api.uid, api.annotation) = ("u2".to_owned(), None);
        api.writes.len()
    };
    until("the new node has it", || api.lock().unwrap().writes.len() > writes);
    assert!(collector.metric("fpga_collector_publications_total{outcome=\"conflict\"}") >= 1.0);
}

#[test]
fn garbage_in_the_annotation_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().annotation = Some("{\"v\":1,\"boot\":".to_owned());
    let server = serve("127.0.0.1:0", &api);
    let _collector = start(dir.path(), &server, &[]);
    until("it is replaced", || last(&api).is_some_and(|state| state.boot == 1));
}

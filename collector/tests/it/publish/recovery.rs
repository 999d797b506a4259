//! What a starting collector takes over from the annotation.

use super::api_server::{away, mk_api, serve};
use super::{last, start, start_busy};
use crate::common::{now_ms, start_collector_with};
use fpga_core::node_state::{Heartbeat, NodeState};
use fpga_test_kit::{Collector, until};
use serde_json::json;

#[test]
fn boots_count_on_from_the_annotation_and_without_a_checkpoint_it_brings_the_window_back() {
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let first_dir = tempfile::tempdir().unwrap();
    let first = start_busy(first_dir.path(), &server, &[]);
    assert_eq!(first.terminate().code(), Some(0));
    let published = last(&api).unwrap();
    assert_eq!((published.boot, published.usage.0), (1, 40));
    let ago = now_ms() - published.measured_at.0;

    // Another folder, as after the loss of the first disk.
    let second_dir = tempfile::tempdir().unwrap();
    let second = start(second_dir.path(), &server, &[]);
    until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(second.usage(), 40, "{ago} ms later");
    assert_eq!(second.state()["bitstreams"][0]["name"], json!("sobel"));
    second.kill();

    // Killed and started on its own checkpoint: it takes nothing more from the annotation.
    let third = start(second_dir.path(), &server, &[]);
    until("the boot after that is published", || last(&api).is_some_and(|state| state.boot == 3));
    assert_eq!(third.usage(), 40);
}

#[test]
fn where_the_checkpoint_is_damaged_the_annotation_brings_the_window_back() {
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let dir = tempfile::tempdir().unwrap();
    let first = start_busy(dir.path(), &server, &["--min-write-interval", "100ms", "--heartbeat", "1s"]);
    until("it is published", || last(&api).is_some_and(|state| state.usage.0 == 40));
    first.kill();
    let snapshot = dir.path().join("checkpoint/snapshot");
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&snapshot, bytes).unwrap();
    let second = start(dir.path(), &server, &[]);
    until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(second.usage(), 40);
    assert_eq!(second.metric("fpga_collector_recovered_damaged_snapshots_total"), 1.0);
    assert!(dir.path().join("checkpoint/snapshot.damaged").exists());
}

#[test]
fn where_the_checkpoint_is_lost_a_device_that_reports_first_does_not_hide_the_annotation() {
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let first_dir = tempfile::tempdir().unwrap();
    let first = start_busy(first_dir.path(), &server, &[]);
    assert_eq!(first.terminate().code(), Some(0));

    // The API server can't be reached until the device has reported.
    let second_dir = tempfile::tempdir().unwrap();
    let (proxy, kubeconfig) = away(second_dir.path());
    let second = start_collector_with(second_dir.path(), &["--kubeconfig", kubeconfig.to_str().unwrap()]);
    second.put_board();
    proxy.redirect(server.address());
    until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    assert_eq!(last(&api).unwrap().usage.0, 40);
}

#[test]
fn where_the_checkpoint_is_lost_a_plugin_of_the_annotation_is_late_in_the_first_state_that_is_written() {
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let heartbeat = || last(&api)?.plugin.map(|plugin| plugin.heartbeat);
    let report = |collector: &Collector| {
        assert_eq!(collector.request("PUT", "/v1/plugin", br#"{"boards":{"dm0":[0,16]}}"#).status, 200);
    };
    let first_dir = tempfile::tempdir().unwrap();
    let first = start(first_dir.path(), &server, &["--min-write-interval", "100ms", "--heartbeat", "1s"]);
    let in_time = until("the plugin is published in time", || {
        report(&first);
        let api = api.lock().unwrap();
        let plugin = api.writes.last().and_then(|state| state.plugin.as_ref());
        plugin.is_some_and(|plugin| plugin.heartbeat == Heartbeat::InTime).then(|| api.annotation.clone())
    });
    first.kill();
    // A state in which the plugin is late may have come in between.
    api.lock().unwrap().annotation = in_time;

    let second_dir = tempfile::tempdir().unwrap();
    let second = start(second_dir.path(), &server, &[]);
    until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    let first_written = |state: &NodeState| (state.boot == 2).then(|| state.plugin.clone());
    let plugin = api.lock().unwrap().writes.iter().find_map(first_written).unwrap();
    assert_eq!(plugin.map(|plugin| plugin.heartbeat), Some(Heartbeat::Late));
    second.put_board();
    until("the plugin's return is published", || {
        report(&second);
        heartbeat() == Some(Heartbeat::InTime)
    });
}

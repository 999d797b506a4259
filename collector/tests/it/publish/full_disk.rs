//! Publication while the disk takes no checkpoint.

use super::api_server::{mk_api, serve};
use super::{last, put_device, spawn, start, start_busy};
use crate::common::{PROGRAM, event};
use fpga_core::device::{DeviceStatus, Health};
use fpga_core::event::Event;
use fpga_test_kit::{Collector, patience, until};
use std::process::Command;
use std::time::Duration;

/// Sets the maximum size of files that the process may write: `limit` is 0 or `unlimited`.
fn limit_file_size(collector: &Collector, limit: &str) {
    let pid = collector.pid().to_string();
    // Only the soft limit, which may be raised again.
    let limit = format!("--fsize={limit}:");
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(status.expect("prlimit of util-linux is needed").success());
}

#[test]
fn a_full_disk_takes_no_healthy_board_out_of_service() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#, PROGRAM]);
    let flags = ["--device-timeout", "3s", "--min-write-interval", "100ms", "--heartbeat", "1s"];
    let collector = spawn(dir.path(), &server, command, &flags);

    let reporter = fpga_hook::Reporter::start(fpga_hook::Config {
        device_interval: Duration::from_millis(100),
        ..fpga_hook::Config::new(collector.unix_endpoint().parse().unwrap())
    });
    let reporter = reporter.unwrap();
    let board = |id: &str, queued| DeviceStatus { queued, ..DeviceStatus::new(id, "intel", 4) };
    let published = |id: &str| last(&api)?.devices.into_iter().find(|device| device.id == id);
    reporter.device(board("reports", 0));
    reporter.flush(patience()).unwrap();
    put_device(&collector, "silent", "s");
    until("both boards", || published("reports").is_some() && published("silent").is_some());

    limit_file_size(&collector, "0");
    reporter.report(serde_json::from_str::<Event>(&event(1, 1, 0)).unwrap());
    until("nothing is acknowledged", || collector.request("GET", "/readyz", b"").status == 503);
    // The silent board does not report, so it becomes unhealthy while the disk is full.
    until("the silent board is unhealthy", || {
        published("silent").is_some_and(|device| device.health == Health::Unhealthy)
    });
    let failures = || collector.metric("fpga_collector_checkpoint_failures_total");
    let before = failures();
    until("the disk is full for some time", || failures() >= before + 3.0);
    assert_eq!(published("reports").unwrap().health, Health::Healthy);
    // Changes are published as well.
    reporter.device(board("reports", 7));
    reporter.device(board("new", 0));
    until("the new board and the queue", || {
        published("new").is_some() && published("reports").is_some_and(|device| device.queued == 7)
    });
    assert_eq!(collector.request("DELETE", "/v1/devices/silent", b"").status, 200);
    until("the board that left", || published("silent").is_none());
    assert_eq!(reporter.stats().sent, 0);
    let journals = std::fs::read_dir(dir.path().join("checkpoint")).unwrap();
    let names = journals.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.filter(|name| name.starts_with("journal-")).count() <= 2);

    limit_file_size(&collector, "unlimited");
    reporter.flush(patience()).unwrap();
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
    let server = serve("127.0.0.1:0", &api);
    let first = start_busy(dir.path(), &server, &[]);
    assert_eq!(first.terminate().code(), Some(0));

    // Files of at most 512 bytes: a snapshot is longer.
    let mut command = Command::new("sh");
    let limited = r#"trap "" XFSZ; ulimit -S -f 1; exec "$0" "$@""#;
    command.args(["-c", limited, PROGRAM]);
    let second = spawn(dir.path(), &server, command, &[]);
    until("the next boot is published", || last(&api).is_some_and(|state| state.boot == 2));
    let state = last(&api).unwrap();
    assert_eq!((state.usage.0, state.devices[0].health), (40, Health::Healthy));
    assert_eq!(second.post(&event(1, 41, 0)).status, 503);

    limit_file_size(&second, "unlimited");
    until("events are taken again", || second.post(&event(1, 41, 0)).status == 200);
    second.kill();
    assert_eq!(start(dir.path(), &server, &[]).usage(), 41);
}

//! The collector as its neighbours see it: requests good and bad, limits, an orderly end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Collector, DEADLINE, event, now_ms, try_request, try_request_unix, wait_until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_plain_event_an_array_and_a_retry_are_answered_with_what_counted() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    let plain = format!(
        r#"{{"timestamp_ms":{},"duration_ms":12,"reconfiguration_ms":0,"bitstream_identifier":"sobel"}}"#,
        now_ms()
    );
    assert_eq!(collector.post(&plain).json(), json!({"accepted": 1, "duplicates": 0}));
    let array = format!("[{},{},{}]", event(1, 1, 0), event(1, 2, 0), event(1, 1, 0));
    assert_eq!(collector.post(&array).json(), json!({"accepted": 2, "duplicates": 1}));
    let over_unix =
        try_request_unix(&dir.path().join("collector.sock"), "POST", "/v1/events", array.as_bytes()).unwrap();
    assert_eq!(over_unix.json(), json!({"accepted": 0, "duplicates": 3}));
    assert_eq!(collector.post("[]").json(), json!({"accepted": 0, "duplicates": 0}));
    let state = collector.state();
    assert_eq!((&state["v"], &state["usageMs"], &state["boot"]), (&json!(1), &json!(14), &json!(1)));
    assert_eq!(collector.metric("fpga_collector_events_total{result=\"duplicate\"}"), 4.0);
}

#[test]
fn of_a_batch_with_one_bad_event_nothing_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    for bad in ["{}", "7", r#"{"timestamp_ms":-1}"#, "[]", r#"{"seq":1}"#] {
        let answer = collector.post(&format!("[{},{bad}]", event(1, 1, 0)));
        assert_eq!(answer.status, 400);
        assert!(answer.json()["error"].as_str().unwrap().contains("event 1"), "{}", answer.text);
    }
    for bad in ["", "{", "nonsense", "[1", "\u{0}"] {
        assert_eq!(collector.post(bad).status, 400);
    }
    let answer = collector.post(&event(1, 1, 0));
    assert_eq!(answer.json(), json!({"accepted": 1, "duplicates": 0}), "its number was not used up");
    assert_eq!(collector.metric("fpga_collector_requests_refused_total{reason=\"malformed\"}"), 10.0);
}

#[test]
fn devices_come_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    let digest = format!("sha256:{}", "0a".repeat(32));
    let device = json!({
        "id": "dm0", "vendor": "intel", "board": "a10", "shell": "s1", "slots": 2, "queued": 3, "health": "healthy",
        "loaded": [{"id": "sobel", "digest": digest}],
    });
    let put = |path: &str, body: &str| collector.request("PUT", path, body.as_bytes()).status;
    assert_eq!(put("/v1/devices/dm0", &device.to_string()), 200);
    assert_eq!(put("/v1/devices/dm1", &device.to_string()), 400, "the path names another");
    assert_eq!(put("/v1/devices/dm0", "{}"), 400);
    let state = collector.state();
    assert_eq!(state["devices"][0]["loaded"], json!([0]));
    assert_eq!(state["bitstreams"][0]["name"], json!("sobel"));
    assert_eq!(state["bitstreams"][0]["digest"], json!("0a".repeat(16)));
    collector.kill();

    let collector = Collector::start(dir.path());
    assert_eq!(collector.state()["devices"], state["devices"], "a restart forgets no device");
    assert_eq!(collector.state()["boot"], json!(2));
    assert_eq!(collector.request("DELETE", "/v1/devices/dm0", b"").status, 200);
    assert_eq!(collector.request("DELETE", "/v1/devices/dm0", b"").status, 404);
    assert_eq!(collector.state().get("devices"), None);
}

#[test]
fn a_device_that_falls_silent_counts_as_unhealthy() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start_with(dir.path(), &["--no-publish", "--device-timeout", "100ms"]);
    collector.put_board();
    wait_until("it is unhealthy", || collector.state()["devices"][0]["healthy"] == json!(false));
    collector.put_board();
    assert_eq!(collector.state()["devices"][0]["healthy"], json!(true));
}

#[test]
fn a_body_that_is_too_long_is_refused_announced_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start_with(dir.path(), &["--no-publish", "--max-body-bytes", "1000"]);
    let body = vec![b' '; 5000];
    let answer = collector.request("POST", "/v1/events", &body);
    assert_eq!(answer.status, 413, "{}", answer.text);

    let mut stream = TcpStream::connect(&collector.tcp).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}1388\r\n{}\r\n", " ".repeat(5000)).as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(collector.post(&event(1, 1, 0)).status, 200);
}

#[test]
fn too_many_requests_at_once_are_sent_away_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start_with(dir.path(), &["--no-publish", "--max-in-flight", "1"]);
    let mut slow = TcpStream::connect(&collector.tcp).unwrap();
    let event = event(1, 1, 0);
    slow.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ";
    slow.write_all(format!("{head}{}\r\n\r\n", event.len()).as_bytes()).unwrap();
    let mut go_on = [0; 25];
    slow.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n", "the slow request is in");
    assert_eq!(collector.post("[]").status, 429);
    slow.write_all(event.as_bytes()).unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(collector.post("[]").status, 200);
}

#[test]
fn the_address_for_metrics_takes_no_events() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start_with(dir.path(), &["--no-publish", "--metrics-listen", "127.0.0.1:0"]);
    let ready = std::fs::read_to_string(dir.path().join("ready")).unwrap();
    let address = ready.lines().find_map(|line| line.strip_prefix("metrics:")).unwrap();
    let status = |method, path| try_request(address, method, path, b"[]").unwrap().status;
    assert_eq!(
        (status("GET", "/metrics"), status("GET", "/readyz"), status("GET", "/healthz")),
        (200, 200, 200)
    );
    assert_eq!(
        (status("POST", "/v1/events"), status("DELETE", "/v1/devices/dm0"), status("GET", "/v1/state")),
        (404, 404, 404)
    );
    assert_eq!(collector.post("[]").status, 200);
}

#[test]
fn the_socket_is_for_the_owner_and_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let _collector = Collector::start(dir.path());
    let mode = std::fs::metadata(dir.path().join("collector.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn asked_to_end_it_ends_in_order_and_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::start(dir.path());
    collector.put_board();
    collector.post(&event(1, 1, 0));
    // A connection that lies idle does not hold it up.
    let _idle = TcpStream::connect(&collector.tcp).unwrap();
    assert_eq!(collector.terminate().code(), Some(0));
    assert!(!dir.path().join("collector.sock").exists());
    let collector = Collector::start(dir.path());
    assert_eq!(collector.usage(), 1);
    assert_eq!(
        collector.metric("fpga_collector_recovered_records_total"),
        0.0,
        "the last word was a snapshot"
    );
}

#[test]
fn a_second_collector_on_the_same_folder_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Collector::start(dir.path());
    let second = Command::new(env!("CARGO_BIN_EXE_fpga-collector"))
        .args(["--no-publish", "--node-name", "n", "--listen", "127.0.0.1:0", "--checkpoint-dir"])
        .arg(dir.path().join("checkpoint"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains("--checkpoint-dir"), "{text}");
}

#[test]
fn bad_flags_are_refused_with_what_to_write() {
    let cases: [(&[&str], &str); 5] = [
        (&["--window", "5"], "5m"),
        (&["--window", "1ms"], "5m"),
        (&["--heartbeat", "0s"], "60s"),
        (&["--min-write-interval", "2m"], "10s"),
        (&["--log", "a=b=c"], "fpga_collector"),
    ];
    for (flags, word) in cases {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fpga-collector"))
            .args(["--no-publish", "--node-name", "n", "--listen", "127.0.0.1:0", "--checkpoint-dir"])
            .arg(dir.path())
            .args(flags)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(word), "{flags:?}: {text}");
    }
}

//! The collector's HTTP interface: good and bad requests, limits, and an orderly end.

use crate::common::{PROGRAM, event, now_ms, socket, start_collector, start_collector_with};
use fpga_test_kit::{Collector, http, patience, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[test]
fn a_plain_event_an_array_and_a_retry_are_answered_with_what_counted() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    let plain = format!(
        r#"{{"timestamp_ms":{},"duration_ms":12,"reconfiguration_ms":0,"bitstream_identifier":"sobel"}}"#,
        now_ms()
    );
    assert_eq!(collector.post(&plain).json(), json!({"accepted": 1, "duplicates": 0}));
    let array = format!("[{},{},{}]", event(1, 1, 0), event(1, 2, 0), event(1, 1, 0));
    assert_eq!(collector.post(&array).json(), json!({"accepted": 2, "duplicates": 1}));
    let over_unix = http::request_unix(&socket(dir.path()), "POST", "/v1/events", array.as_bytes()).unwrap();
    assert_eq!(over_unix.json(), json!({"accepted": 0, "duplicates": 3}));
    assert_eq!(collector.post("[]").json(), json!({"accepted": 0, "duplicates": 0}));
    let state = collector.state();
    assert_eq!((&state["v"], &state["usageMs"], &state["boot"]), (&json!(1), &json!(14), &json!(1)));
    assert_eq!(collector.metric("fpga_collector_events_total{result=\"duplicate\"}"), 4.0);
}

#[test]
fn of_a_batch_with_one_bad_event_nothing_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
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
    let collector = start_collector(dir.path());
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

    let collector = start_collector(dir.path());
    assert_eq!(collector.state()["devices"], state["devices"], "a restart forgets no device");
    assert_eq!(collector.state()["boot"], json!(2));
    assert_eq!(collector.request("DELETE", "/v1/devices/dm0", b"").status, 200);
    assert_eq!(collector.request("DELETE", "/v1/devices/dm0", b"").status, 404);
    assert_eq!(collector.state().get("devices"), None);
}

#[test]
fn the_node_plugins_report_stands_in_the_state_and_is_late_without_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    assert_eq!(collector.state().get("plugin"), None, "boards may be wired by hand");
    let put = |body: &str| collector.request("PUT", "/v1/plugin", body.as_bytes());
    let report = json!({"boards": {"dm0": [3, 16]}, "keptOff": ["rs-1"], "later": {}});
    assert_eq!(put(&report.to_string()).status, 200);
    assert_eq!(collector.state()["plugin"]["boards"], report["boards"]);
    assert_eq!(collector.state()["plugin"]["keptOff"], report["keptOff"]);
    let too_many: Vec<_> = (0..9).map(|owner| owner.to_string()).collect();
    for bad in ["", "7", r#"{"boards":{"dm0":[1]}}"#, &json!({"keptOff": too_many}).to_string()] {
        let answer = put(bad);
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.json()["error"].as_str().unwrap().contains("node plugin's report"), "{}", answer.text);
    }
    until("the plugin is late", || collector.state()["plugin"]["late"] == json!(true));
    until("the plugin is in time", || {
        put(&report.to_string()).status == 200 && collector.state()["plugin"].get("late").is_none()
    });
}

#[test]
fn a_plugin_that_leaves_is_late_at_once_and_after_a_restart_until_it_reports() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    let report = json!({"boards": {"dm0": [3, 16]}}).to_string();
    // A report is late after 2.5 s, which a busy machine may take to answer.
    let put = |collector: &Collector| {
        until("the plugin is in time", || {
            collector.request("PUT", "/v1/plugin", report.as_bytes()).status == 200
                && collector.state()["plugin"].get("late").is_none()
        });
    };
    put(&collector);
    assert_eq!(collector.request("DELETE", "/v1/plugin", b"").status, 200);
    assert_eq!(collector.state()["plugin"]["late"], json!(true));
    put(&collector);
    collector.kill();
    let collector = start_collector(dir.path());
    assert_eq!(collector.state()["plugin"]["late"], json!(true), "it may have ended meanwhile");
    assert_eq!(collector.terminate().code(), Some(0));
    let collector = start_collector(dir.path());
    assert_eq!(collector.state()["plugin"]["late"], json!(true));
    put(&collector);
}

#[test]
fn a_device_that_falls_silent_counts_as_unhealthy() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector_with(dir.path(), &["--no-publish", "--device-timeout", "100ms"]);
    collector.put_board();
    until("it is unhealthy", || collector.state()["devices"][0]["healthy"] == json!(false));
    until("it is healthy again", || {
        collector.put_board();
        collector.state()["devices"][0]["healthy"] == json!(true)
    });
}

#[test]
fn a_body_that_is_too_long_is_refused_announced_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector_with(dir.path(), &["--no-publish", "--max-body-bytes", "1000"]);
    let body = vec![b' '; 5000];
    let answer = collector.request("POST", "/v1/events", &body);
    assert_eq!(answer.status, 413, "{}", answer.text);

    let mut stream = TcpStream::connect(&collector.tcp).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    let head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}1388\r\n{}\r\n", " ".repeat(5000)).as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(collector.post(&event(1, 1, 0)).status, 200);
}

/// Head and body of the answer to a POST with these headers.
fn post_with(address: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(patience())).unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn who_floods_is_told_when_to_come_again_and_then_taken() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector_with(dir.path(), &["--no-publish", "--max-bytes-per-second", "300"]);
    let event = event(1, 1, 0);
    assert!(post_with(&collector.tcp, "", &event).starts_with("HTTP/1.1 200"));
    let mut refused = String::new();
    until("a flood to be refused", || {
        refused = post_with(&collector.tcp, "", &event);
        refused.starts_with("HTTP/1.1 429")
    });
    let again = refused.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=2).contains(&again.parse::<u64>().unwrap()), "{refused}");
    assert!(collector.metric("fpga_collector_requests_refused_total{reason=\"rate\"}") >= 1.0);
    until("the same to be taken later", || {
        post_with(&collector.tcp, "", &event).contains("\"duplicates\":1")
    });
}

#[test]
fn over_tcp_a_token_is_wanted_and_over_the_socket_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "a-token-for-this-test").unwrap();
    let flags = ["--no-publish", "--token-file", token.to_str().unwrap(), "--allow-uid", "4294967294"];
    let collector = start_collector_with(dir.path(), &flags);
    let event = event(1, 1, 0);
    assert!(post_with(&collector.tcp, "", &event).starts_with("HTTP/1.1 403"));
    assert!(
        post_with(&collector.tcp, "Authorization: Bearer wrong-token-altogether\r\n", &event)
            .starts_with("HTTP/1.1 403")
    );
    assert!(
        post_with(&collector.tcp, "Authorization: Bearer a-token-for-this-test\r\n", &event)
            .starts_with("HTTP/1.1 200")
    );
    let probe = |path| http::request(&collector.tcp, "GET", path, b"").unwrap().status;
    assert_eq!((probe("/healthz"), probe("/metrics"), probe("/v1/state")), (200, 200, 403));
    // The collector's own user may always report.
    let socket = socket(dir.path());
    let own = http::request_unix(&socket, "POST", "/v1/events", event.as_bytes()).unwrap();
    assert_eq!((own.status, own.json()), (200, json!({"accepted": 0, "duplicates": 1})));
    assert_eq!(collector.metric("fpga_collector_requests_refused_total{reason=\"peer\"}"), 3.0);
    if nix::unistd::geteuid().is_root() {
        // Only root can become another user; otherwise the unit test of the rule must do.
        let curl = |uid: u32| {
            let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                s.sendall(b'GET /v1/state HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'); print(s.recv(12).decode())";
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
            let mut command = Command::new("python3");
            std::os::unix::process::CommandExt::uid(&mut command, uid);
            let output = command.args(["-c", script]).arg(&socket).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(curl(4_294_967_294), "HTTP/1.1 200");
        assert_eq!(curl(4_294_967_293), "HTTP/1.1 403");
    }
}

#[test]
fn a_head_that_trickles_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    let idle: Vec<_> = (0..400).map(|_| TcpStream::connect(&collector.tcp).unwrap()).collect();
    for stream in &idle {
        let _ = (&*stream).write_all(b"POST /v1/ev");
    }
    assert_eq!(collector.post(&event(1, 1, 0)).status, 200);
    until("the longest idle to make room", || {
        collector.metric("fpga_collector_connections_refused_total{reason=\"evicted\"}") >= 100.0
    });
}

#[test]
fn the_address_for_metrics_takes_no_events() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector_with(dir.path(), &["--no-publish", "--metrics-listen", "127.0.0.1:0"]);
    let ready = std::fs::read_to_string(dir.path().join("ready")).unwrap();
    let address = ready.lines().find_map(|line| line.strip_prefix("metrics:")).unwrap();
    let status = |method, path| http::request(address, method, path, b"[]").unwrap().status;
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
    let _collector = start_collector(dir.path());
    let mode = std::fs::metadata(socket(dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn asked_to_end_it_ends_in_order_and_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let collector = start_collector(dir.path());
    collector.put_board();
    collector.post(&event(1, 1, 0));
    // An idle connection does not delay the end.
    let _idle = TcpStream::connect(&collector.tcp).unwrap();
    assert_eq!(collector.terminate().code(), Some(0));
    assert!(!socket(dir.path()).exists());
    let collector = start_collector(dir.path());
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
    let _first = start_collector(dir.path());
    let second = Command::new(PROGRAM)
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
    let cases: [(&[&str], &str); 8] = [
        (&["--window", "5"], "5m"),
        (&["--window", "1ms"], "5m"),
        (&["--heartbeat", "0s"], "60s"),
        (&["--min-write-interval", "2m"], "10s"),
        (&["--log", "a=b=c"], "fpga_collector"),
        (&["--max-body-bytes", "0"], "1048576"),
        (&["--max-body-bytes", "1000000", "--max-bytes-in-flight", "1000000"], "--max-bytes-in-flight 13"),
        (&["--max-bytes-in-flight", "10"], "write at least 13"),
    ];
    for (flags, word) in cases {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(PROGRAM)
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

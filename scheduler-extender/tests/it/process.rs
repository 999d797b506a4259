//! The program without an API server: it starts, is not ready, and ends on signals.

use crate::extender::{Extender, PROGRAM, assert_refused};
use fpga_test_kit::{metrics, until};
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Waits until the extender takes no new connection.
fn until_closed(extender: &Extender) {
    until("an end of the port", || TcpStream::connect(&extender.address).is_err());
}

#[test]
fn without_an_api_server_it_lives_and_is_not_ready() {
    let mut extender = Extender::start(&[]);
    assert_eq!((extender.get("/healthz").status, extender.get("/readyz").status), (200, 503));
    let request =
        r#"{"Pod":{"metadata":{"labels":{"fpga-scheduling.io/fpga-vendor":"intel"}}},"NodeNames":["n"]}"#;
    assert_eq!(extender.post("/filter", request).status, 503);
    assert_eq!(extender.post("/fpga/filter", "{").status, 400);
    until("a watch that fails", || {
        metrics::sum(&extender.get("/metrics").text, "fpga_extender_watch_errors_total") > 0.0
    });
    assert!(extender.is_running(), "an API server that is away doesn't end it");
}

/// Arguments with which SIGTERM closes the ports immediately.
const NO_DELAY: [&str; 2] = ["--shutdown-delay", "0s"];

#[test]
fn a_signal_ends_it_at_once_though_a_connection_is_kept() {
    for (signal, args) in [(Signal::SIGTERM, NO_DELAY.as_slice()), (Signal::SIGINT, &[])] {
        let mut extender = Extender::start(args);
        let mut kept = extender.connect();
        kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut first = [0; 12];
        kept.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        extender.signal(signal);
        assert!(extender.ended().success());
    }
}

#[test]
fn a_request_in_progress_is_finished_before_it_ends() {
    let mut extender = Extender::start(&NO_DELAY);
    let mut slow = extender.connect();
    slow.write_all(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    let mut going_on = [0; 12];
    slow.read_exact(&mut going_on).unwrap();
    assert_eq!(&going_on, b"HTTP/1.1 100", "it is waiting for the body");
    extender.signal(Signal::SIGTERM);
    until_closed(&extender);
    slow.write_all(br#"{"Pod":{},"NodeNames":["a","b"]}"#).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK") && answer.contains(r#""NodeNames":["a","b"]"#), "{answer}");
    assert!(extender.ended().success());
}

#[test]
fn after_sigterm_it_is_not_ready_and_answers_until_its_delay_is_over_or_another_signal_comes() {
    let mut extender = Extender::start(&["--shutdown-delay", "1h"]);
    let mut kept = extender.connect();
    // A connection without any request would end after 5 s.
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut before = Vec::new();
    while !before.ends_with(b"\r\n\r\nok\n") {
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        before.extend(byte);
    }
    extender.signal(Signal::SIGTERM);
    until("readiness to end", || extender.get("/readyz").text.contains("is about to end"));
    let request = r#"{"Pod":{},"NodeNames":["a"]}"#;
    assert!(extender.post("/filter", request).text.contains(r#""NodeNames":["a"]"#), "a new connection");
    write!(kept, "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 28\r\n\r\n{request}").unwrap();
    let mut first = [0; 12];
    kept.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200", "a connection from before");
    extender.signal(Signal::SIGTERM);
    assert!(extender.ended().success());
    let mut extender = Extender::start(&["--shutdown-delay", "100ms"]);
    extender.signal(Signal::SIGTERM);
    assert!(extender.ended().success());
}

#[test]
fn a_second_signal_cuts_what_is_in_progress() {
    let mut extender = Extender::start(&NO_DELAY);
    let mut stuck = extender.connect();
    stuck
        .write_all(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    stuck.read_exact(&mut [0; 12]).unwrap();
    extender.signal(Signal::SIGTERM);
    until_closed(&extender);
    assert!(extender.is_running(), "it waits for the request");
    extender.signal(Signal::SIGTERM);
    assert!(extender.ended().success());
}

/// Replaces a file as an editor or the kubelet does.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn a_configuration_that_changes_is_taken_and_a_wrong_one_is_told() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("extender.yaml");
    replace(&path, "weights: {usage: 7}\nmaxScore: 100\n");
    let extender = Extender::start(&["--config", path.to_str().unwrap(), "--locality-weight", "3"]);
    let until_told = |endpoint: &str, texts: &[&str]| {
        until(format!("{texts:?}"), || {
            let answer = extender.get(endpoint).text;
            if texts.iter().all(|text| answer.contains(text)) { Ok(()) } else { Err(answer) }
        });
    };
    until_told(
        "/config",
        &[r#""locality":3.0,"usage":7.0"#, r#""byFlag":["weights.locality"]"#, r#""problem":null"#],
    );
    replace(&path, "weights: 1-1-1\n");
    until_told("/config", &[r#""locality":3.0,"usage":1.0"#, r#""max_score":10"#, r#""problem":null"#]);
    replace(&path, "weights: 1-1-1\nmaxScores: 5\n");
    until_told("/config", &[r#""locality":3.0,"usage":1.0"#, r#""line":2"#, "unknown field `maxScores`"]);
    let refused = r#"fpga_extender_config_changes_total{outcome="refused"} 1"#;
    until_told(
        "/metrics",
        &["fpga_extender_config_valid 0", refused, r#"fpga_extender_weight{signal="usage"} 1.0"#],
    );
    replace(&path, "{}");
    until_told("/config", &[r#""locality":3.0,"usage":2.0"#, r#""problem":null"#]);
    until_told("/metrics", &["fpga_extender_config_valid 1"]);
}

#[test]
fn what_is_wrong_with_its_arguments_is_said_at_once() {
    let dir = TempDir::new().unwrap();
    let refused = |args: &[&str], hint: &str| assert_refused(Command::new(PROGRAM).env_clear(), args, hint);
    refused(&["--kubeconfig", "/nonexistent"], "the kubeconfig /nonexistent can't be used");
    refused(&["--usage-weight", "-1"], "-1 is not a weight");
    refused(&["--weights", "x"], "`1-2-2`");
    let path = dir.path().join("extender.yaml");
    let config = ["--config", path.to_str().unwrap()];
    refused(&config, "can't read --config");
    std::fs::write(&path, "weights:\n  usage: -2\n").unwrap();
    refused(&config, "extender.yaml:2:10: ");
    refused(&config, "-2 is not a weight");
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("Which setting wins:"));
}

#[test]
fn a_request_that_is_given_up_is_counted_for_its_client_tells_nobody() {
    let extender = Extender::start(&[]);
    let mut impatient = extender.connect();
    impatient.write_all(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\n{").unwrap();
    impatient.shutdown(std::net::Shutdown::Both).unwrap();
    until("the count", || {
        let metrics = extender.get("/metrics").text;
        let counted = |kind| {
            let line = format!("fpga_extender_errors_total{{verb=\"prioritize\",kind=\"{kind}\"}} 1");
            metrics.lines().any(|shown| shown == line)
        };
        counted("abandoned") || counted("interrupted")
    });
}

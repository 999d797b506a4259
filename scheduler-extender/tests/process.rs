//! The program without an API server: it starts, is not ready, and ends on signals.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests fail by panicking, as the tests do")]

use fpga_net::testing;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Timeout of a test's step: long enough for a slow machine, shorter than the grace period of a shutdown.
const DEADLINE: Duration = Duration::from_secs(60);

struct Extender {
    process: Child,
    address: String,
    _dir: TempDir,
}

impl Extender {
    fn start(args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let (kubeconfig, ready) = (dir.path().join("kubeconfig"), dir.path().join("ready"));
        std::fs::write(&kubeconfig, testing::kubeconfig("http://127.0.0.1:9")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_fpga-scheduler-extender"))
            .args(["--listen", "127.0.0.1:0", "--ready-file"])
            .arg(&ready)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(args)
            .env_clear()
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut extender = Self { process, address: String::new(), _dir: dir };
        extender.address = until(|| read(&ready));
        extender
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// The whole response, status and headers included, on a connection of its own.
    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = self.connect();
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        until(|| self.process.try_wait().unwrap())
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        // In most tests the process has ended by now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "it didn't happen in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn without_an_api_server_it_lives_and_is_not_ready() {
    let mut extender = Extender::start(&[]);
    assert!(extender.ask("GET /healthz", "").starts_with("HTTP/1.1 200"));
    assert!(extender.ask("GET /readyz", "").starts_with("HTTP/1.1 503"));
    let request =
        r#"{"Pod":{"metadata":{"labels":{"fpga-scheduling.io/fpga-vendor":"intel"}}},"NodeNames":["n"]}"#;
    assert!(extender.ask("POST /filter", request).starts_with("HTTP/1.1 503"));
    assert!(extender.ask("POST /fpga/filter", "{").starts_with("HTTP/1.1 400"));
    until(|| {
        let metrics = extender.ask("GET /metrics", "");
        let failed =
            metrics.lines().find_map(|line| line.strip_prefix("fpga_extender_watch_errors_total "))?;
        (failed != "0").then_some(())
    });
    assert!(extender.process.try_wait().unwrap().is_none(), "an API server that is away doesn't end it");
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
    until(|| TcpStream::connect(&extender.address).is_err().then_some(()));
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
    extender.signal(Signal::SIGTERM);
    until(|| extender.ask("GET /readyz", "").contains("is about to end").then_some(()));
    let request = r#"{"Pod":{},"NodeNames":["a"]}"#;
    assert!(extender.ask("POST /filter", request).contains(r#""NodeNames":["a"]"#), "a new connection");
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
    until(|| TcpStream::connect(&extender.address).is_err().then_some(()));
    assert!(extender.process.try_wait().unwrap().is_none(), "it waits for the request");
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
        until(|| {
            let answer = extender.ask(&format!("GET {endpoint}"), "");
            texts.iter().all(|text| answer.contains(text)).then_some(())
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
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_fpga-scheduler-extender"))
            .args(args)
            .env_clear()
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run(&["--kubeconfig", "/nonexistent"]).contains("--kubeconfig /nonexistent can't be read"));
    assert!(run(&["--usage-weight", "-1"]).contains("-1 is not a weight"));
    assert!(run(&["--weights", "x"]).contains("`1-2-2`"));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("extender.yaml");
    assert!(run(&["--config", path.to_str().unwrap()]).contains("can't read --config"));
    std::fs::write(&path, "weights:\n  usage: -2\n").unwrap();
    let error = run(&["--config", path.to_str().unwrap()]);
    assert!(error.contains("extender.yaml:2:10: ") && error.contains("-2 is not a weight"), "{error}");
    let help = Command::new(env!("CARGO_BIN_EXE_fpga-scheduler-extender")).arg("--help").output().unwrap();
    assert!(String::from_utf8(help.stdout).unwrap().contains("Which setting wins:"));
}

#[test]
fn a_request_that_is_given_up_is_counted_for_its_client_tells_nobody() {
    let extender = Extender::start(&[]);
    let mut impatient = extender.connect();
    impatient.write_all(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n\r\n{").unwrap();
    impatient.shutdown(std::net::Shutdown::Both).unwrap();
    until(|| {
        let metrics = extender.ask("GET /metrics", "");
        let counted = |kind| {
            let line = format!("fpga_extender_errors_total{{verb=\"prioritize\",kind=\"{kind}\"}} 1");
            metrics.lines().any(|shown| shown == line)
        };
        (counted("abandoned") || counted("interrupted")).then_some(())
    });
}

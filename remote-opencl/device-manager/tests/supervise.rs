//! `supervise` from outside: boards get managers, which are started anew, and end with it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use fpga_emulated_board::{Controls, VARIABLE};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use support::{children, manager, runs, stderr, until};
use tempfile::TempDir;

struct Supervisor {
    child: Child,
    folder: TempDir,
}

impl Supervisor {
    /// A supervisor of boards of the kind `x`.
    fn start(variables: &[(&str, &str)], own: &[&str], of_serve: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("fs").tempdir_in("/tmp").unwrap();
        let metrics = format!("unix:{}/metrics.sock", folder.path().display());
        let mut command = manager();
        command.args(["supervise", "--kind", "x", "--metrics-listen", &metrics, "--ready-file"]);
        command.arg(folder.path().join("ready")).arg("--run-dir").arg(folder.path().join("run"));
        command.args(own).arg("--").args(["--slots", "2"]).args(of_serve);
        command.envs(variables.iter().copied()).env("TMPDIR", folder.path());
        Self { child: command.spawn().unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until all managers accept sessions, and returns their addresses.
    fn ready(&mut self) -> Vec<String> {
        let text = until("all managers to be ready", || {
            assert!(self.child.try_wait().unwrap().is_none(), "the supervisor ended");
            std::fs::read_to_string(self.path("ready")).ok()
        });
        text.lines().map(str::to_owned).collect()
    }

    /// The answer to a GET of `path`, with its status line first; empty if nobody answers.
    fn get(&self, path: &str) -> String {
        let Ok(mut stream) = UnixStream::connect(self.path("metrics.sock")) else { return String::new() };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The process of a board's manager.
    fn manager_of(&self, board: &str) -> Option<u32> {
        let serves = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == board.as_bytes())
        };
        children(self.child.id()).into_iter().find(serves)
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let managers = children(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The managers drain when the supervisor has gone.
        until("the managers to end", || (!managers.iter().any(|pid| runs(*pid))).then_some(()));
    }
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn each_board_has_a_manager_that_wants_tokens_and_all_end_in_order_on_sigterm() {
    let mut supervisor = Supervisor::start(&[], &["--boards-per-device", "2"], &[]);
    let socket = |board: &str| supervisor.path(&format!("run/managers/{board}/dm.sock"));
    let (first, second) = (socket("x-0"), socket("x-1"));
    let address = |path: &Path| format!("unix:{}", path.display());
    assert_eq!(supervisor.ready(), [address(&first), address(&second)]);
    for (path, expected) in [(&first, 0o666), (&second, 0o666)] {
        assert_eq!(mode(path), expected, "who shows a token may be any user");
        assert_eq!(mode(path.parent().unwrap()), 0o755, "programs can't put another socket in its place");
    }
    assert_eq!(mode(&supervisor.path("run/tokens/x-1")), 0o700, "nobody else reads tokens");
    let readiness = supervisor.get("/readyz");
    assert!(
        readiness.starts_with("HTTP/1.1 200") && readiness.contains("x-0: ready\nx-1: ready\n"),
        "{readiness}"
    );
    let metrics = supervisor.get("/metrics");
    for line in [
        "fpga_device_manager_supervised_ready{board=\"x-0\"} 1",
        "fpga_device_manager_sessions{board=\"x-0\"} 0",
        "fpga_device_manager_sessions{board=\"x-1\"} 0",
        "fpga_device_manager_slots{board=\"x-1\"} 2",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
    let managers = [supervisor.manager_of("x-0").unwrap(), supervisor.manager_of("x-1").unwrap()];
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.child.wait().unwrap().code(), Some(0));
    assert!(managers.iter().all(|pid| !runs(*pid)) && !first.exists() && !second.exists());
}

#[test]
fn a_manager_that_was_killed_is_started_anew_under_the_same_name_and_others_go_on() {
    let mut supervisor = Supervisor::start(&[], &["--boards-per-device", "2"], &[]);
    supervisor.ready();
    let (killed, other) = (supervisor.manager_of("x-0").unwrap(), supervisor.manager_of("x-1").unwrap());
    send(killed, Signal::SIGKILL);
    until("another manager to be ready", || {
        let metrics = supervisor.get("/metrics");
        let is_there = |line: &str| metrics.lines().any(|it| it == line);
        (is_there("fpga_device_manager_supervised_restarts_total{board=\"x-0\"} 1")
            && is_there("fpga_device_manager_supervised_ready{board=\"x-0\"} 1"))
        .then_some(())
    });
    assert_ne!(supervisor.manager_of("x-0").unwrap(), killed);
    assert_eq!(supervisor.manager_of("x-1").unwrap(), other);
    UnixStream::connect(supervisor.path("run/managers/x-0/dm.sock")).unwrap();
}

#[test]
fn a_board_that_vanishes_loses_its_manager_and_gets_one_when_it_appears() {
    let controls = tempfile::NamedTempFile::new().unwrap();
    let board = Controls::open(controls.path()).unwrap();
    let library = std::env::current_exe().unwrap().with_file_name("libfpga_emulated_board.so");
    let own = ["--look-interval", "100ms", "--runtime", library.to_str().unwrap()];
    board.unplugged(true);
    let variables = [(VARIABLE, controls.path().to_str().unwrap())];
    let mut supervisor = Supervisor::start(&variables, &own, &["--isolate", "protocol"]);
    until("the supervisor to find no device", || {
        let readiness = supervisor.get("/readyz");
        (readiness.starts_with("HTTP/1.1 503") && readiness.ends_with("devices: the runtime has none\n"))
            .then_some(())
    });
    board.unplugged(false);
    supervisor.ready();
    let pid = supervisor.manager_of("x-0").unwrap();
    board.unplugged(true);
    until("the board to be forgotten", || {
        (!runs(pid) && !supervisor.path("run/managers/x-0").exists()).then_some(())
    });
    board.unplugged(false);
    until("the board to be back", || supervisor.get("/readyz").starts_with("HTTP/1.1 200").then_some(()));
}

#[test]
fn what_no_manager_would_start_with_is_refused_at_once() {
    for (arguments, expected) in [
        (&["--kind", "x", "--", "--listen", "unix:/a"][..], "--listen can't stand after `--`"),
        (&["--kind", "x", "--", "--tokens-optional"], "--tokens-optional can't stand after `--`"),
        (&["--kind", "x", "--", "--slots", "0"], "--slots"),
        (&["--kind", "x", "--", "--sluts", "1"], "--slots"),
        (&["--kind", "a b"], "`pac-a10`"),
        (&["--kind", "x", "--metrics-listen", "9462"], "`0.0.0.0:9462`"),
        (&[], "--kind"),
    ] {
        let output = manager().arg("supervise").args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_runtime_that_is_not_there_is_told_while_the_supervisor_waits_for_it() {
    let supervisor = Supervisor::start(&[], &["--runtime", "/nonexistent/libx.so"], &[]);
    until("the reason", || supervisor.get("/readyz").contains("/nonexistent/libx.so").then_some(()));
    let metrics = supervisor.get("/metrics");
    assert!(metrics.contains("fpga_device_manager_discovery_failures_total"), "{metrics}");
}

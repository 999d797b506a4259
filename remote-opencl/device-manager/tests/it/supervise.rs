//! `supervise` from outside: boards get managers, which are started anew, and end with it.

use crate::support::stderr;
use fpga_emulated_board::{Controls, VARIABLE};
use fpga_test_kit::http::{Answer, request_unix};
use fpga_test_kit::manager::command;
use fpga_test_kit::processes::{children, runs};
use fpga_test_kit::{Program, output, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Supervisor {
    program: Program,
    folder: TempDir,
}

impl Supervisor {
    /// A supervisor of boards of the kind `x`.
    fn start(variables: &[(&str, &str)], own: &[&str], of_serve: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("fs").tempdir_in("/tmp").unwrap();
        let metrics = format!("unix:{}/metrics.sock", folder.path().display());
        let mut command = command();
        command.args(["supervise", "--kind", "x", "--metrics-listen", &metrics, "--ready-file"]);
        command.arg(folder.path().join("ready")).arg("--run-dir").arg(folder.path().join("run"));
        command.args(own).arg("--").args(["--slots", "2"]).args(of_serve);
        command.envs(variables.iter().copied()).env("TMPDIR", folder.path());
        Self { program: Program::start(&mut command), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until all managers accept sessions, and returns their addresses.
    fn ready(&mut self) -> Vec<String> {
        let mut lines = self.program.ready(&self.folder.path().join("ready"));
        let metrics = format!("metrics:unix:{}", self.path("metrics.sock").display());
        assert_eq!(lines.pop(), Some(metrics));
        lines
    }

    /// The answer to a GET of `path`, once there is one.
    fn get(&self, path: &str) -> Answer {
        until(format!("an answer to GET {path}"), || {
            request_unix(&self.path("metrics.sock"), "GET", path, b"")
        })
    }

    /// The process of a board's manager.
    fn manager_of(&self, board: &str) -> Option<u32> {
        let serves = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == board.as_bytes())
        };
        children(self.program.id()).into_iter().find(serves)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let managers = children(self.program.id());
        self.program.kill();
        // The managers drain when the supervisor has gone.
        until("the managers to end", || !managers.iter().any(|pid| runs(*pid)));
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
    assert!(readiness.status == 200 && readiness.text.contains("x-0: ready\nx-1: ready\n"), "{readiness:?}");
    let metrics = supervisor.get("/metrics").text;
    for line in [
        "fpga_device_manager_supervised_ready{board=\"x-0\"} 1",
        "fpga_device_manager_sessions{board=\"x-0\"} 0",
        "fpga_device_manager_sessions{board=\"x-1\"} 0",
        "fpga_device_manager_slots{board=\"x-1\"} 2",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
    let managers = [supervisor.manager_of("x-0").unwrap(), supervisor.manager_of("x-1").unwrap()];
    assert_eq!(supervisor.program.terminate().code(), Some(0));
    assert!(managers.iter().all(|pid| !runs(*pid)) && !first.exists() && !second.exists());
}

#[test]
fn a_manager_that_was_killed_is_started_anew_under_the_same_name_and_others_go_on() {
    let mut supervisor = Supervisor::start(&[], &["--boards-per-device", "2"], &[]);
    supervisor.ready();
    let (killed, other) = (supervisor.manager_of("x-0").unwrap(), supervisor.manager_of("x-1").unwrap());
    send(killed, Signal::SIGKILL);
    until("another manager to be ready", || {
        let metrics = supervisor.get("/metrics").text;
        let is_there = |line: &str| metrics.lines().any(|it| it == line);
        is_there("fpga_device_manager_supervised_restarts_total{board=\"x-0\"} 1")
            && is_there("fpga_device_manager_supervised_ready{board=\"x-0\"} 1")
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
        readiness.status == 503 && readiness.text.ends_with("devices: the runtime has none\n")
    });
    board.unplugged(false);
    supervisor.ready();
    let pid = supervisor.manager_of("x-0").unwrap();
    board.unplugged(true);
    until("the board to be forgotten", || !runs(pid) && !supervisor.path("run/managers/x-0").exists());
    board.unplugged(false);
    until("the board to be back", || supervisor.get("/readyz").status == 200);
}

#[test]
fn what_no_manager_would_start_with_is_refused_at_once() {
    for (arguments, expected) in [
        (&["--kind", "x", "--", "--listen", "unix:/a"][..], "--listen can't stand after `--`"),
        (&["--kind", "x", "--", "--tokens-optional"], "--tokens-optional can't stand after `--`"),
        (&["--kind", "x", "--", "--slots", "0"], "--slots"),
        (&["--kind", "x", "--", "--sluts", "1"], "--slots"),
        (&["--kind", "x", "--", "--slots", "2", "--reconfiguration=full"], "--slots 1"),
        (&["--kind", "x", "--", "--model", "board.toml"], "`--isolate protocol`"),
        (&["--kind", "a b"], "`pac-a10`"),
        (&["--kind", "x", "--metrics-listen", "9462"], ":9462`"),
        (&[], "--kind"),
    ] {
        let output = output(command().arg("supervise").args(arguments));
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{arguments:?}: {output:?}");
    }
}

/// Gives this thread, and the processes that it starts, a kernel without Landlock.
fn without_landlock() {
    let rules = [(libc::SYS_landlock_create_ruleset, Vec::new())].into();
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn a_kernel_that_can_not_confine_tenants_is_refused_unless_a_flag_accepts_that() {
    without_landlock();
    let output = output(command().args(["supervise", "--kind", "x"]));
    assert!(!output.status.success());
    for expected in ["Landlock", "`--confine-builds wanted`", "after `--`"] {
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
    let mut supervisor = Supervisor::start(&[], &[], &["--confine-builds", "wanted"]);
    assert!(!supervisor.ready().is_empty());
}

#[test]
fn a_runtime_that_is_not_there_is_told_while_the_supervisor_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libx.so").display().to_string();
    let supervisor = Supervisor::start(&[], &["--runtime", &library], &[]);
    until("the reason", || supervisor.get("/readyz").text.contains(&library));
    let metrics = supervisor.get("/metrics").text;
    assert!(metrics.contains("fpga_device_manager_discovery_failures_total"), "{metrics}");
}

//! A device manager.

use crate::http::{self, Answer};
use crate::{Program, metrics, programs, until_async};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `fpga-device-manager serve` over PoCL, or over the runtime of `RUNTIME`. It listens at a socket in a folder of its
/// own, and serves its metrics at a free port.
#[derive(Debug)]
pub struct Manager {
    program: Program,
    folder: tempfile::TempDir,
    /// The addresses at which it takes sessions, the socket first.
    pub addresses: Vec<String>,
    metrics: String,
}

/// The program `fpga-device-manager`, without the settings that the environment of the tests may have. SIGINT has its default
/// action: a shell starts background jobs with SIGINT ignored, and no program below it could trap it.
#[must_use]
pub fn command() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,QUIT").arg(programs::built("fpga-device-manager"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FPGA_") && name != "FPGA_INTEL_OPENCL" {
            command.env_remove(name);
        }
    }
    command
}

/// The runtime below the managers of tests.
#[must_use]
pub fn runtime() -> String {
    std::env::var("RUNTIME").unwrap_or_else(|_| "pocl".to_owned())
}

impl Manager {
    /// Starts a manager with more arguments, and waits until it is ready.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        Self::start_in(&[], args)
    }

    /// Starts a manager with environment variables.
    #[must_use]
    pub fn start_in(variables: &[(&str, &str)], args: &[&str]) -> Self {
        Self::start_over(&runtime(), variables, args)
    }

    /// Starts a manager over a runtime.
    #[must_use]
    pub fn start_over(runtime: &str, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let socket = format!("unix:{}", folder.path().join("dm.sock").display());
        let mut command = command();
        command.args(["serve", "--listen", &socket, "--runtime", runtime]);
        command.args(["--metrics-listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
        let mut program = Program::start(command.args(args).envs(variables.iter().copied()));
        let mut lines = program.ready(&ready);
        let metrics = lines.pop().unwrap();
        let metrics =
            metrics.strip_prefix("metrics:").unwrap_or_else(|| panic!("no metrics: {metrics}")).to_owned();
        Self { program, folder, addresses: lines, metrics }
    }

    /// The folder with the socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("dm.sock")
    }

    /// The address of the socket: `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// The address at which the manager listens on TCP: `tcp://IP:PORT`.
    #[must_use]
    pub fn tcp_address(&self) -> &str {
        let tcp = self.addresses.iter().find(|address| address.starts_with("tcp://"));
        tcp.unwrap_or_else(|| panic!("no TCP address in {:?}", self.addresses))
    }

    /// The answer of the metrics' port to a GET.
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        http::get(&self.metrics, path)
    }

    /// The text of `/metrics`.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.get("/metrics").text
    }

    /// Waits until the metrics have this line. Tenant processes report their counters once a second.
    pub async fn counts(&self, line: &str) {
        until_async(format!("the metric {line}"), async || {
            let text = self.metrics_text();
            if text.lines().any(|it| it == line) { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Waits until a kernel runs: until the manager and its tenants' processes have taken a second of processor time from now on.
    /// What they do before a kernel takes less.
    pub async fn computes(&self) {
        let before = self.processor_time();
        until_async("a kernel to run", async || self.processor_time() >= before + Duration::from_secs(1))
            .await;
    }

    /// Processor time of the manager and its child processes.
    fn processor_time(&self) -> Duration {
        let processes = [vec![self.id()], crate::processes::children(self.id())].concat();
        processes.into_iter().filter_map(crate::processes::processor_time).sum()
    }

    /// Number of sessions in the metrics.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        let text = self.metrics_text();
        let sessions = metrics::value(&text, "fpga_device_manager_sessions");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        sessions.map(|count| count as u64).unwrap_or_else(|| panic!("no metric in {text}"))
    }

    /// Waits until at most `most` sessions are left.
    pub async fn has_no_more_sessions_than(&self, most: u64) {
        until_async(format!("at most {most} sessions"), async || {
            let sessions = self.sessions();
            if sessions <= most { Ok(()) } else { Err(format!("{sessions} sessions")) }
        })
        .await;
    }

    /// Waits until no session is left.
    pub async fn has_no_session(&self) {
        self.has_no_more_sessions_than(0).await;
    }
}

impl Deref for Manager {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Manager {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

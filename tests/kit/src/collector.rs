//! A collector.

use crate::http::{self, Answer};
use crate::{Program, metrics, programs};
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// A running collector of `node-1`. Its files are in a folder that outlives it.
#[derive(Debug)]
pub struct Collector {
    program: Program,
    pub dir: PathBuf,
    /// The address at which the collector takes requests.
    pub tcp: String,
}

impl Collector {
    /// Starts a collector for `node-1` by `command`, whose last argument is the program, and waits until it is ready.
    pub fn start(command: Command, dir: &Path, args: &[&str]) -> Self {
        let mut program = Self::launch(command, dir, args);
        let tcp = program.ready(&dir.join("ready")).swap_remove(0);
        Self { program, dir: dir.to_owned(), tcp }
    }

    /// Starts the built collector for `node-1`, which publishes nothing.
    pub fn without_api_server(dir: &Path, args: &[&str]) -> Self {
        let command = Command::new(programs::built("fpga-collector"));
        Self::start(command, dir, &[&["--no-publish", "--log", "warn"], args].concat())
    }

    /// Starts a collector without waiting for it; it writes the file `ready` when it is ready.
    pub fn launch(mut command: Command, dir: &Path, args: &[&str]) -> Program {
        let ready = dir.join("ready");
        // There is no file at the first start.
        let _ = std::fs::remove_file(&ready);
        command
            .args(["--node-name", "node-1", "--listen", "127.0.0.1:0", "--checkpoint-dir"])
            .arg(dir.join("checkpoint"))
            .arg("--listen-unix")
            .arg(socket(dir))
            .arg("--ready-file")
            .arg(&ready)
            .args(args)
            .env_remove("KUBECONFIG");
        Program::start(&mut command)
    }

    /// The endpoint of a hook that reports over TCP.
    pub fn tcp_endpoint(&self) -> String {
        format!("http://{}", self.tcp)
    }

    /// The endpoint of a hook that reports over the unix socket.
    pub fn unix_endpoint(&self) -> String {
        format!("unix:{}", socket(&self.dir).display())
    }

    /// Kills the collector, as a power cut would, but without loss of what the kernel has not yet written to disk.
    pub fn kill(mut self) {
        assert!(self.program.is_running(), "the collector has ended");
        self.program.kill();
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(mut self) -> ExitStatus {
        self.program.terminate()
    }

    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        http::request(&self.tcp, method, path, body).unwrap()
    }

    pub fn post(&self, body: &str) -> Answer {
        self.request("POST", "/v1/events", body.as_bytes())
    }

    /// The node state as it would be published now.
    pub fn state(&self) -> Value {
        let answer = self.request("GET", "/v1/state", b"");
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// The node state over the unix socket, which requires no token.
    pub fn unix_state(&self) -> Value {
        let answer = http::request_unix(&socket(&self.dir), "GET", "/v1/state", b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    pub fn usage(&self) -> u64 {
        self.state()["usageMs"].as_u64().unwrap()
    }

    /// The sum of the metric's lines that begin with `name`.
    pub fn metric(&self, name: &str) -> f64 {
        metrics::sum(&self.request("GET", "/metrics", b"").text, name)
    }

    /// Adds a board with so many slots that no test's load exceeds their time.
    pub fn put_board(&self) {
        let body = br#"{"id":"dm0","vendor":"intel","slots":4096,"health":"healthy"}"#;
        assert_eq!(self.request("PUT", "/v1/devices/dm0", body).status, 200);
    }
}

impl Deref for Collector {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Collector {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("collector.sock")
}

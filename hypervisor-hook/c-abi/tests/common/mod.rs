//! A collector process for each test, with C programs and the shared libraries of the workspace to run against it.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(60);

/// Builds packages of the workspace, once per process, and returns the folder of the results. All calls must name the
/// same packages.
pub fn build(packages: &[&str]) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_now(packages)).clone()
}

fn build_now(packages: &[&str]) -> PathBuf {
    let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--target-dir"]).arg(folder.parent().unwrap());
    for package in packages {
        build.args(["--package", package]);
    }
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{packages:?} don't build");
    folder
}

/// A collector without an API server, killed when dropped.
pub struct Collector {
    child: Child,
    address: String,
    socket: PathBuf,
}

impl Collector {
    pub fn start(program: &Path, folder: &Path) -> Self {
        Self::start_with(program, folder, &[])
    }

    pub fn start_with(program: &Path, folder: &Path, args: &[&str]) -> Self {
        let (ready, socket) = (folder.join("ready"), folder.join("collector.sock"));
        let child = Command::new(program)
            .args([
                "--no-publish",
                "--log",
                "warn",
                "--node-name",
                "node-1",
                "--listen",
                "127.0.0.1:0",
                "--checkpoint-dir",
            ])
            .arg(folder.join("checkpoint"))
            .arg("--listen-unix")
            .arg(&socket)
            .arg("--ready-file")
            .arg(&ready)
            .args(args)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut collector = Self { child, address: String::new(), socket };
        wait_until("the collector is ready", || {
            assert!(collector.child.try_wait().unwrap().is_none(), "the collector ended early");
            ready.exists()
        });
        let addresses = std::fs::read_to_string(&ready).unwrap();
        collector.address = addresses.lines().next().unwrap().to_owned();
        collector
    }

    pub fn tcp(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn unix(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// The node state as it would be published now.
    pub fn state(&self) -> Value {
        // Over the unix socket, which requires no token.
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /v1/state HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

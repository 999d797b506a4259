//! A collector as a process of its own, for the tests of several crates.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(missing_docs, reason = "for tests")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(30);

/// A running collector, which is killed when it is dropped. Its files are in a folder that outlives it.
pub struct Collector {
    child: Child,
    pub dir: PathBuf,
    /// The address at which the collector takes requests.
    pub tcp: String,
}

pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

impl Collector {
    /// Starts a collector for `node-1` by `command`, whose last argument is the program, and waits until it is ready.
    pub fn start(command: Command, dir: &Path, args: &[&str]) -> Self {
        let child = Self::launch(command, dir, args);
        let mut collector = Self { child, dir: dir.to_owned(), tcp: String::new() };
        let ready = dir.join("ready");
        wait_until("the collector is ready", || {
            assert!(collector.child.try_wait().unwrap().is_none(), "the collector ended early");
            ready.exists()
        });
        let addresses = std::fs::read_to_string(&ready).unwrap();
        collector.tcp = addresses.lines().next().unwrap().to_owned();
        collector
    }

    /// Starts a collector without waiting for it; it writes the file `ready` when it is ready.
    pub fn launch(mut command: Command, dir: &Path, args: &[&str]) -> Child {
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
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The endpoint of a hook that reports over TCP.
    pub fn tcp_endpoint(&self) -> String {
        format!("http://{}", self.tcp)
    }

    /// The endpoint of a hook that reports over the unix socket.
    pub fn unix_endpoint(&self) -> String {
        format!("unix:{}", socket(&self.dir).display())
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Kills the collector, as a power cut would, but without loss of what the kernel has not yet written to disk.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(mut self) -> ExitStatus {
        kill(self.pid(), Signal::SIGTERM).unwrap();
        let mut status = None;
        wait_until("the collector ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        try_request(&self.tcp, method, path, body).unwrap()
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
        let answer = try_request_unix(&socket(&self.dir), "GET", "/v1/state", b"").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    pub fn usage(&self) -> u64 {
        self.state()["usageMs"].as_u64().unwrap()
    }

    /// The sum of the metric's lines that begin with `name`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.request("GET", "/metrics", b"").text;
        let values = text.lines().filter(|line| line.starts_with(name));
        values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// Adds a board with so many slots that no test's load exceeds their time.
    pub fn put_board(&self) {
        let body = br#"{"id":"dm0","vendor":"intel","slots":4096,"health":"healthy"}"#;
        assert_eq!(self.request("PUT", "/v1/devices/dm0", body).status, 200);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("collector.sock")
}

/// One request over TCP, on a connection of its own.
///
/// # Errors
/// The collector sent no whole answer.
pub fn try_request(address: &str, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    exchange(stream, method, path, body)
}

/// One request over a unix socket, on a connection of its own.
///
/// # Errors
/// The collector sent no whole answer.
pub fn try_request_unix(path: &Path, method: &str, target: &str, body: &[u8]) -> io::Result<Answer> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    exchange(stream, method, target, body)
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A server that refuses a body may close before it has read all of it; its answer counts.
    let sent = stream.write_all(body);
    let mut text = Vec::new();
    if let Err(error) = stream.read_to_end(&mut text)
        && text.is_empty()
    {
        return Err(sent.err().unwrap_or(error));
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer");
    let (head, text) = text.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(cut_off)?;
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| text.len() < length) {
        return Err(cut_off());
    }
    Ok(Answer { status, text: text.to_owned() })
}

/// Waits until `condition` holds.
///
/// # Panics
/// The condition does not hold in time; the message has `what`.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

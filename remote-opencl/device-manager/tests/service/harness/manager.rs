//! A device manager as a child process.

use super::{DEADLINE, processes, until};
use hyper_util::rt::TokioIo;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

/// A manager over PoCL or over the runtime of `FPGA_TEST_RUNTIME`; dropping the value ends it.
pub struct Manager {
    child: Child,
    folder: tempfile::TempDir,
    pub addresses: Vec<String>,
    metrics: SocketAddr,
}

impl Manager {
    pub fn start(args: &[&str]) -> Self {
        Self::start_in(&[], args)
    }

    /// Starts a manager with these environment variables.
    pub fn start_in(variables: &[(&str, &str)], args: &[&str]) -> Self {
        let runtime = std::env::var("FPGA_TEST_RUNTIME").unwrap_or_else(|_| "pocl".to_owned());
        Self::start_over(&runtime, variables, args)
    }

    /// Starts a manager over this runtime.
    pub fn start_over(runtime: &str, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let socket = format!("unix:{}", folder.path().join("dm.sock").display());
        // The port was free a moment ago.
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_fpga-device-manager"))
            .args(["serve", "--listen", &socket, "--runtime", runtime])
            .args(["--metrics-listen", &metrics.to_string(), "--ready-file"])
            .arg(&ready)
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut manager = Self { child, folder, addresses: Vec::new(), metrics };
        let since = Instant::now();
        manager.addresses = loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                break text.lines().map(str::to_owned).collect();
            }
            assert!(manager.child.try_wait().unwrap().is_none(), "the manager ended");
            assert!(since.elapsed() < DEADLINE, "the manager is not ready");
            std::thread::sleep(Duration::from_millis(5));
        };
        manager
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("dm.sock")
    }

    /// The text of `/metrics`.
    pub fn metrics_text(&self) -> String {
        self.get("/metrics")
    }

    /// The answer to a GET of `path`, with its status line first.
    pub fn get(&self, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until the metrics have this line. Tenant processes report their counters once a second.
    pub async fn counts(&self, line: &str) {
        let since = Instant::now();
        loop {
            let text = self.metrics_text();
            if text.lines().any(|it| it == line) {
                return;
            }
            assert!(since.elapsed() < DEADLINE, "{line} is not in {text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a kernel runs: until the manager and its tenants' processes have taken a second of processor time from now on.
    /// What they do before a kernel takes less.
    pub async fn computes(&self) {
        let before = self.processor_time();
        until("a kernel runs", async || self.processor_time() >= before + Duration::from_secs(1)).await;
    }

    /// Processor time of the manager and its child processes.
    fn processor_time(&self) -> Duration {
        let processes = [vec![self.pid()], processes::children(self.pid())].concat();
        processes.into_iter().filter_map(processes::processor_time).sum()
    }

    /// Number of sessions in the metrics.
    pub fn sessions(&self) -> u64 {
        let text = self.metrics_text();
        let line = text.lines().find_map(|line| line.strip_prefix("fpga_device_manager_sessions "));
        line.unwrap_or_else(|| panic!("no metric in {text}")).parse().unwrap()
    }

    /// Waits until no session is left.
    pub async fn has_no_session(&self) -> bool {
        self.has_no_more_sessions_than(0).await
    }

    /// Waits until at most `most` sessions are left.
    pub async fn has_no_more_sessions_than(&self, most: u64) -> bool {
        let since = Instant::now();
        while self.sessions() > most {
            if since.elapsed() > DEADLINE {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        true
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        self.terminate();
        self.ends()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) {
        // The process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process, while the clients of the test continue.
    pub async fn has_ended(&mut self) -> std::process::ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < DEADLINE, "the manager does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the end of the process, blocking.
    pub fn ends(&mut self) -> std::process::ExitStatus {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(since.elapsed() < DEADLINE, "the manager does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub async fn tcp_channel(&self) -> Channel {
        let address = self.addresses.iter().find_map(|address| address.strip_prefix("tcp://")).unwrap();
        Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
    }

    pub async fn channel(&self) -> Channel {
        self.try_channel().await.unwrap()
    }

    pub async fn try_channel(&self) -> Result<Channel, ()> {
        let socket = self.socket();
        let connect = tower::service_fn(move |_: tonic::transport::Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://manager").connect_with_connector(connect).await.map_err(|_| ())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}

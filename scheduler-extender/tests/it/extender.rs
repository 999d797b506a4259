//! The program, with an API server that is away.

use fpga_test_kit::http::{self, Answer};
use fpga_test_kit::{Program, kubeconfig, patience};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fpga-scheduler-extender");

pub struct Extender {
    program: Program,
    pub address: String,
    /// The address of probes and metrics.
    pub metrics: String,
    _dir: TempDir,
}

/// The program with ports of its own, and its files in `dir`.
pub fn command(dir: &Path) -> Command {
    let kubeconfig_file = dir.join("kubeconfig");
    std::fs::write(&kubeconfig_file, kubeconfig("http://127.0.0.1:9")).unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(kubeconfig_file)
        .arg("--ready-file")
        .arg(dir.join("ready"))
        .env_clear();
    command
}

/// Asserts that the program refuses these arguments, with `hint` in the reason.
pub fn assert_refused(command: &mut Command, args: &[&str], hint: &str) {
    let output = command.args(args).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains(hint), "{args:?}: {text}");
}

impl Extender {
    pub fn start(args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let mut program = Program::start(command(dir.path()).args(args));
        let lines = program.ready(&dir.path().join("ready"));
        let metrics = lines.iter().find_map(|line| line.strip_prefix("metrics:")).unwrap().to_owned();
        Self { program, address: lines[0].clone(), metrics, _dir: dir }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(patience())).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Answer {
        http::get(&self.address, path)
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        http::request(&self.address, "POST", path, body.as_bytes()).unwrap()
    }

    /// An answer of the port for probes and metrics.
    pub fn probe(&self, path: &str) -> Answer {
        http::get(&self.metrics, path)
    }
}

impl Deref for Extender {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Extender {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

//! Shared by the tests of the program: running it as a process, and waiting for a condition with a deadline.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The program, without the settings that the environment of the tests may have. Signals have their default
/// action: a shell starts background jobs with SIGINT ignored, and no program below it could trap it.
pub fn manager() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT", env!("CARGO_BIN_EXE_fpga-device-manager")]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FPGA_") && name != "FPGA_INTEL_OPENCL" {
            command.env_remove(name);
        }
    }
    command
}

/// Waits until `condition` returns a value.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; false for a zombie.
pub fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the process's name, which is in parentheses.
    status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// A file that stands for the library that programs load, in tests whose programs load none.
pub fn some_icd(folder: &Path) -> PathBuf {
    let path = folder.join("libsome.so");
    std::fs::write(&path, "").unwrap();
    path
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

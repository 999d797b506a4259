//! The collector of this crate, and its events.

use fpga_test_kit::Collector;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fpga-collector");

/// Starts a collector in `dir` that uses no API server.
pub fn start_collector(dir: &Path) -> Collector {
    start_collector_with(dir, &["--no-publish"])
}

pub fn start_collector_with(dir: &Path, args: &[&str]) -> Collector {
    Collector::start(Command::new(PROGRAM), dir, args)
}

/// The socket of the collector in `dir`.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("collector.sock")
}

pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An event of 1 ms that ended `ago` milliseconds ago.
pub fn event(reporter: u64, seq: u64, ago: u64) -> String {
    format!(
        r#"{{"timestamp_ms":{},"duration_ms":1,"reconfiguration_ms":0,"bitstream_identifier":"sobel","reporter":{reporter},"seq":{seq},"device":"dm0"}}"#,
        now_ms() - ago
    )
}

/// Makes a library in `dir` from C. `LD_PRELOAD` puts its functions before the C library's.
pub fn library(dir: &Path, code: &str) -> PathBuf {
    let (source, library) = (dir.join("preloaded.c"), dir.join("preloaded.so"));
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(cc.status().expect("a C compiler, cc, is needed").success());
    library
}

/// A line of `/proc/PID/status` in KiB: `VmRSS` is the resident memory, `VmHWM` its peak.
pub fn memory_kib(collector: &Collector, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", collector.id())).unwrap();
    let value = status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':')).unwrap();
    value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// Tells the threads of a test to stop when it is dropped, also by a panic.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

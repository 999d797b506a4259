//! The collector of this crate, and its events.
#![allow(dead_code, reason = "each test file uses its part")]

use fpga_test_kit::Collector;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fpga-collector");

/// Starts a collector in `dir` that uses no API server.
pub fn start_collector(dir: &Path) -> Collector {
    start_collector_with(dir, &["--no-publish"])
}

pub fn start_collector_with(dir: &Path, args: &[&str]) -> Collector {
    Collector::start(Command::new(PROGRAM), dir, args)
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

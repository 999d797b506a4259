//! A collector process for each test, with C programs and the shared libraries of the workspace to run against it.
#![allow(dead_code, reason = "each test file uses its part")]

use fpga_test_kit::Collector;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the workspace's libraries and the collector, once per process, and returns the folder of the results.
pub fn build() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| fpga_test_programs::build(&["--lib", "--bin", "fpga-collector"])).clone()
}

/// Starts a collector without an API server.
pub fn start_collector(program: &Path, folder: &Path, args: &[&str]) -> Collector {
    Collector::start(Command::new(program), folder, &[&["--no-publish", "--log", "warn"], args].concat())
}

//! A collector process for each test, with C programs and the shared libraries of the workspace to run against it.
#![allow(dead_code, reason = "each test file uses its part")]

use fpga_collector::testing::Collector;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the workspace's libraries and the collector, once per process, and returns the folder of the results. They have the
/// features of the whole workspace: what `cargo build --workspace` has built is not built once more.
pub fn build() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_now).clone()
}

fn build_now() -> PathBuf {
    let folder = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--lib", "--bin", "fpga-collector"]);
    build.arg("--target-dir").arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the libraries and the collector don't build");
    folder
}

/// Starts a collector without an API server.
pub fn start_collector(program: &Path, folder: &Path, args: &[&str]) -> Collector {
    Collector::start(Command::new(program), folder, &[&["--no-publish", "--log", "warn"], args].concat())
}

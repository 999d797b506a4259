//! A collector process for each test, with C programs and the shared libraries of the workspace to run against it.
#![allow(dead_code, reason = "each test file uses its part")]

use fpga_collector::testing::Collector;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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

/// Starts a collector without an API server.
pub fn start_collector(program: &Path, folder: &Path, args: &[&str]) -> Collector {
    Collector::start(Command::new(program), folder, &[&["--no-publish", "--log", "warn"], args].concat())
}

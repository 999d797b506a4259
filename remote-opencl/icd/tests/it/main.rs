//! The library as programs in C use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that can't go on shall fail"
)]

mod contract;
mod loader;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the library.
fn library() -> PathBuf {
    fpga_test_kit::programs::built("libfpga_opencl_icd.so")
}

/// Compiles a program beside these tests.
fn compile(folder: &Path, name: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{name}.c"));
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source).args(libraries);
    assert!(cc.status().expect("a C compiler, cc").success(), "are libOpenCL and its headers installed?");
    program
}

/// A folder whose one .icd file names the library.
fn vendors(folder: &Path) -> PathBuf {
    let vendors = folder.join("vendors");
    std::fs::create_dir(&vendors).unwrap();
    std::fs::write(vendors.join("fpga.icd"), library().to_str().unwrap()).unwrap();
    vendors
}

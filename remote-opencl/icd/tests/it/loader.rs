//! The shared library as an ICD loader uses it: its exported symbols, and a C program over the system's libOpenCL.
//!
//! These tests need no device manager; tests that need one run under the manager's `exec`.

use super::{compile, library, vendors};
use std::path::Path;
use std::process::{Command, Output};

fn run(program: &Path, vendors: &Path, environment: &[(&str, &str)]) -> Output {
    Command::new(program)
        .env("OCL_ICD_VENDORS", vendors)
        .env_remove("FPGA_DEVICE_MANAGERS")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn only_the_loaders_symbols_are_exported() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().expect("nm");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut symbols: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next_back()).collect();
    symbols.sort_unstable();
    assert_eq!(symbols, ["clGetExtensionFunctionAddress", "clGetPlatformInfo", "clIcdGetPlatformIDsKHR"]);
}

#[test]
fn without_managers_there_is_no_platform_and_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "platforms", &["-lOpenCL"]);
    let vendors = vendors(folder.path());
    // A socket without a listener, and the guard that keeps a manager from serving itself.
    let dead = format!("unix:{}", folder.path().join("dead.sock").display());
    for environment in
        [vec![], vec![("FPGA_DEVICE_MANAGERS", dead.as_str())], vec![("FPGA_INSIDE_DEVICE_MANAGER", "1")]]
    {
        let output = run(&program, &vendors, &environment);
        assert!(output.status.success(), "{environment:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "-1001 0\n", "{environment:?}");
    }
}

#[test]
fn garbage_handles_get_errors_and_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "garbage", &["-ldl"]);
    let output = Command::new(&program).arg(library()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

//! The contract of the C API, tested by C programs over a real device manager with PoCL, or with the runtime of
//! `RUNTIME`.

use super::{compile, library, vendors};
use fpga_test_kit::manager::{command, runtime};
use fpga_test_kit::{Manager, Program, output, patience};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program in C by the manager's `exec`.
fn exec(name: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), name, &["-lOpenCL"]);
    let mut exec = command();
    exec.args(["exec", "--runtime", &runtime()])
        .args(arguments)
        .arg("--icd")
        .arg(library())
        .arg("--")
        .arg(program);
    output(&mut exec)
}

/// Asserts that a program in C succeeds and writes this.
fn writes(name: &str, arguments: &[&str], expected: &str) {
    let output = exec(name, arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {}\n{text}{output:?}", output.status);
    assert_eq!(text, expected, "{arguments:?}");
}

#[test]
fn the_contract_holds_over_a_unix_socket_and_over_tcp() {
    for transport in [&[][..], &["--tcp"]] {
        writes("contract", transport, "0 failures\n");
    }
}

#[test]
fn what_a_device_claims_beyond_the_usual_works() {
    let claimed = match runtime().as_str() {
        "pocl" => "sub-devices timers built-in-kernels ",
        "intel-cpu" => "sub-devices timers pipes device-queues sub-groups il ",
        _ => "sub-devices ",
    };
    writes("newer", &[], &format!("{claimed}0 failures\n"));
}

#[test]
fn images_in_buffers_binaries_with_images_and_markers_out_of_order_are_as_on_the_runtime() {
    let ran = if runtime() == "intel-fpga" { "markers " } else { "images markers images-from-binary " };
    writes("probe", &[], &format!("{ran}0 failures\n"));
}

#[test]
fn signals_are_handled_as_before_threads_take_none_and_children_have_no_descriptors() {
    for way in [&[][..], &["--shared-memory", "off"], &["--tcp"]] {
        writes("guest", way, "");
    }
}

#[test]
fn a_forked_child_has_a_session_of_its_own() {
    writes("fork", &[], "");
}

/// A manager that listens on `socket`.
fn serve(socket: &str, ready: &Path) -> Program {
    // There is no file at the first start.
    let _ = std::fs::remove_file(ready);
    let mut serve = command();
    serve
        .args(["serve", "--log", "warn", "--runtime", &runtime(), "--listen", socket, "--ready-file"])
        .arg(ready);
    let mut manager = Program::start(&mut serve);
    manager.ready(ready);
    manager
}

#[test]
fn a_program_outlives_its_manager_and_finds_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "restart", &["-lOpenCL"]);
    let socket = format!("unix:{}", folder.path().join("dm0.sock").display());
    let ready = folder.path().join("ready");
    let serving = serve(&socket, &ready);
    let mut child = Command::new("timeout")
        .arg(patience().as_secs().to_string())
        .arg(program)
        .env("OCL_ICD_VENDORS", vendors(folder.path()))
        .env("FPGA_DEVICE_MANAGERS", &socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "ready");
    drop(serving);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let _serving = serve(&socket, &ready);
    let status = child.wait().unwrap();
    let rest: Vec<_> = output.map(Result::unwrap).collect();
    assert!(status.success(), "{status}: {rest:?}");
}

#[test]
fn several_managers_and_vendors_are_platforms_of_one_application() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "several", &["-lOpenCL"]);
    // Between the two is a manager that doesn't exist.
    let managers = [Manager::start(&[]), Manager::start_over("pocl", &[], &[])];
    let dead = format!("unix:{}", folder.path().join("dead.sock").display());
    let list = [managers[0].address(), &dead, managers[1].address()].join(",");
    let mut several = Command::new(program);
    several.env("OCL_ICD_VENDORS", vendors(folder.path())).env("FPGA_DEVICE_MANAGERS", list);
    let output = output(&mut several);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(text.trim(), "2");
}

//! The contract of the C API, tested by C programs over a real device manager and PoCL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The folder of this test's binary. The workspace's binaries lie in its parent.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Path of the device manager's binary, on which this package doesn't depend.
fn manager() -> PathBuf {
    fpga_test_programs::build(&["--bin", "fpga-device-manager"]).join("fpga-device-manager")
}

fn compile(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(format!("{name}.c"));
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source).arg("-lOpenCL");
    assert!(cc.status().expect("a C compiler, cc").success(), "is libOpenCL with its headers installed?");
    program
}

fn exec(arguments: &[&str], program: &Path) -> Output {
    Command::new(manager())
        .arg("exec")
        .args(arguments)
        .arg("--icd")
        .arg(built().join("libfpga_opencl_icd.so"))
        .arg("--")
        .args(["timeout", "120"])
        .arg(program)
        .output()
        .unwrap()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// PoCL, which must be installed, and Intel's FPGA emulator if `RUNTIME=intel-fpga` has fetched it.
fn runtimes() -> Vec<&'static str> {
    let fetched = repository().join("build/intel-opencl/lib").is_dir();
    if fetched { vec!["pocl", "intel-fpga"] } else { vec!["pocl"] }
}

#[test]
fn the_contract_holds_over_a_unix_socket_and_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "contract");
    for runtime in runtimes() {
        for transport in [&[][..], &["--tcp"]] {
            let arguments = [&["--runtime", runtime], transport].concat();
            let output = exec(&arguments, &program);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{arguments:?}: {}\n{text}{output:?}", output.status);
            assert_eq!(text, "0 failures\n", "{arguments:?}");
        }
    }
}

#[test]
fn what_a_device_claims_beyond_the_usual_works() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "newer");
    for runtime in runtimes().into_iter().chain(runtimes().get(1).map(|_| "intel-cpu")) {
        let output = exec(&["--runtime", runtime], &program);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{runtime}: {}\n{text}{output:?}", output.status);
        let claimed = match runtime {
            "pocl" => "sub-devices timers built-in-kernels ",
            "intel-cpu" => "sub-devices timers pipes device-queues sub-groups il ",
            _ => "sub-devices ",
        };
        assert_eq!(text, format!("{claimed}0 failures\n"), "{runtime}");
    }
}

#[test]
fn images_in_buffers_binaries_with_images_and_markers_out_of_order_are_as_on_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "probe");
    for runtime in runtimes().into_iter().chain(runtimes().get(1).map(|_| "intel-cpu")) {
        let output = exec(&["--runtime", runtime], &program);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{runtime}: {}\n{text}{output:?}", output.status);
        let ran = if runtime == "intel-fpga" { "markers " } else { "images markers images-from-binary " };
        assert_eq!(text, format!("{ran}0 failures\n"), "{runtime}");
    }
}

#[test]
fn signals_are_handled_as_before_threads_take_none_and_children_have_no_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "guest");
    for way in [&[][..], &["--shared-memory", "off"], &["--tcp"]] {
        let output = exec(way, &program);
        assert!(output.status.success() && output.stdout.is_empty(), "{way:?}: {output:?}");
    }
}

#[test]
fn a_forked_child_has_a_session_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let output = exec(&[], &compile(folder.path(), "fork"));
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// A manager that listens on `socket`; killed when dropped.
struct Serving(Child);

impl Serving {
    fn start(manager: &Path, socket: &str, ready: &Path) -> Self {
        Self::start_with(manager, socket, ready, "pocl")
    }

    fn start_with(manager: &Path, socket: &str, ready: &Path, runtime: &str) -> Self {
        let _ = std::fs::remove_file(ready);
        let mut serve = Command::new(manager);
        serve
            .args(["serve", "--log", "warn", "--runtime", runtime, "--listen", socket, "--ready-file"])
            .arg(ready);
        serve.current_dir(repository());
        let mut serving = Self(serve.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready.exists() {
            assert!(serving.0.try_wait().unwrap().is_none(), "the manager ended");
            assert!(Instant::now() < deadline, "the manager isn't ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_outlives_its_manager_and_finds_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, program) = (manager(), compile(folder.path(), "restart"));
    let socket = format!("unix:{}", folder.path().join("dm0.sock").display());
    let ready = folder.path().join("ready");
    let vendors = folder.path().join("fpga.icd");
    std::fs::write(&vendors, built().join("libfpga_opencl_icd.so").to_str().unwrap()).unwrap();

    let serving = Serving::start(&manager, &socket, &ready);
    let mut child = Command::new("timeout")
        .arg("60")
        .arg(program)
        .env("OCL_ICD_VENDORS", vendors)
        .env("FPGA_DEVICE_MANAGERS", &socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "ready");
    drop(serving);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let _serving = Serving::start(&manager, &socket, &ready);
    let status = child.wait().unwrap();
    let rest: Vec<_> = output.map(Result::unwrap).collect();
    assert!(status.success(), "{status}: {rest:?}");
}

#[test]
fn several_managers_and_vendors_are_platforms_of_one_application() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, program) = (manager(), compile(folder.path(), "several"));
    let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
    // One runtime twice, another one if there is one, and between them a manager that doesn't exist.
    let runtimes: Vec<_> = runtimes().into_iter().chain(["pocl"]).collect();
    let mut addresses = Vec::new();
    let mut serving = Vec::new();
    for (index, runtime) in runtimes.iter().enumerate() {
        let socket = socket(&format!("dm{index}.sock"));
        let ready = folder.path().join(format!("ready{index}"));
        serving.push(Serving::start_with(&manager, &socket, &ready, runtime));
        addresses.push(socket);
    }
    addresses.insert(1, socket("dead.sock"));
    let vendors = folder.path().join("fpga.icd");
    std::fs::write(&vendors, built().join("libfpga_opencl_icd.so").to_str().unwrap()).unwrap();
    let output = Command::new("timeout")
        .arg("60")
        .arg(program)
        .env("OCL_ICD_VENDORS", vendors)
        .env("FPGA_DEVICE_MANAGERS", addresses.join(","))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert_eq!(text.trim(), runtimes.len().to_string());
}

//! Native OpenCL programs over PoCL under the layer, which reports to a real collector.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use fpga_test_kit::{Collector, Program, output, programs, until};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

struct Bed {
    folder: tempfile::TempDir,
    layer: PathBuf,
    collector: Collector,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::without_api_server(folder.path(), &[]);
        Self { folder, layer: programs::built("libfpga_opencl_layer.so"), collector }
    }

    /// A command that runs a program natively over PoCL.
    fn native(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd");
        command
    }

    /// Like [`Self::native`], under the layer, without a collector.
    fn idle(&self, program: &Path) -> Command {
        let mut command = self.native(program);
        command.env("OPENCL_LAYERS", &self.layer).env("FPGA_LAYER_LOG", self.log());
        command
    }

    /// Like [`Self::idle`], with a collector.
    fn layered(&self, program: &Path) -> Command {
        let mut command = self.idle(program);
        command.env("FPGA_COLLECTOR", self.collector.unix_endpoint());
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("layer.log")
    }

    fn native_c(&self) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native.c");
        let program = self.folder.path().join("native");
        let mut cc = Command::new("cc");
        cc.args(["-D_GNU_SOURCE", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
        cc.arg(&program).arg(source).args(["-lOpenCL", "-pthread"]);
        assert!(cc.status().expect("a C compiler, cc").success(), "is libOpenCL with its headers installed?");
        program
    }

    /// A sample program of the repository that does not know of kube-fpga.
    fn program(&self, name: &str) -> PathBuf {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/opencl-programs");
        let folder = self.folder.path();
        let mut make = Command::new("make");
        make.arg("-s").arg("-C").arg(sources).arg(format!("OUT={}", folder.display()));
        succeed(make.arg(folder.join(name)));
        folder.join(name)
    }

    /// The binary that PoCL makes of a kernel, and its digest in hexadecimal.
    fn binary(&self, native: &Path) -> (PathBuf, String) {
        let path = self.folder.path().join("binary");
        succeed(self.native(native).arg("write-binary").arg(&path));
        let digest = Sha256::digest(std::fs::read(&path).unwrap());
        (path, digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn succeed(command: &mut Command) -> Output {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

fn usage(state: &Value) -> u64 {
    state["usageMs"].as_u64().unwrap()
}

fn bitstreams(state: &Value) -> &[Value] {
    state["bitstreams"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn programs_print_the_same_with_the_layer_as_without_it() {
    let bed = Bed::new();
    for name in [
        "vector_add",
        "native_events",
        "callback_status",
        "retain_release",
        "two_queues_deadlock",
        "user_event_deadlock",
    ] {
        let native = succeed(&mut bed.native(&bed.program(name)));
        for profiling in ["1", "0"] {
            let layered = succeed(bed.layered(&bed.program(name)).env("FPGA_ADD_PROFILING", profiling));
            assert_eq!(native.stdout, layered.stdout, "{name}");
            assert_eq!(native.stderr, layered.stderr, "{name}");
        }
    }
    // These print times, so their output differs. map_unmap is left out: PoCL decrements its count of maps only some
    // time after the unmap.
    for name in ["null_kernel", "map_touch"] {
        succeed(&mut bed.layered(&bed.program(name)));
    }
    let state = bed.collector.unix_state();
    assert!(bitstreams(&state).len() >= 5, "a source each: {state}");
    // PoCL compiles while a program is built and launched, not on the device.
    assert_eq!(state["reconfigurationMs"], 0);
    let wrong = |program: &mut Command| output(program.arg("--nonsense"));
    let (native, layered) = (
        wrong(&mut bed.native(&bed.program("vector_add"))),
        wrong(&mut bed.layered(&bed.program("vector_add"))),
    );
    assert_eq!((native.status, native.stderr), (layered.status, layered.stderr));
}

#[test]
fn a_collector_that_asks_for_a_token_is_shown_it() {
    let bed = Bed::new();
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "a-token-for-this-test").unwrap();
    let args = ["--token-file", token_file.to_str().unwrap()];
    let collector = Collector::without_api_server(folder.path(), &args);
    let mut command = bed.layered(&bed.program("null_kernel"));
    command.env("FPGA_COLLECTOR", collector.tcp_endpoint()).env("FPGA_DEVICE_VENDOR", "acme");
    succeed(&mut command);
    assert!(collector.unix_state().get("devices").is_none(), "without the token");
    succeed(command.env("FPGA_COLLECTOR_TOKEN_FILE", &token_file));
    assert_eq!(collector.unix_state()["devices"][0]["vendor"], "acme");
}

#[test]
fn an_application_can_not_tell_that_its_queues_have_profiling() {
    let bed = Bed::new();
    let native = bed.native_c();
    succeed(bed.native(&native).args(["visible", "-"]));
    for profiling in ["1", "0"] {
        succeed(bed.layered(&native).args(["visible", "-"]).env("FPGA_ADD_PROFILING", profiling));
    }
    assert!(!bitstreams(&bed.collector.unix_state()).is_empty(), "its transfers are reported");
}

#[test]
fn many_threads_may_enqueue_at_once() {
    let bed = Bed::new();
    let native = bed.native_c();
    succeed(bed.native(&native).args(["threads", "-"]));
    for profiling in ["1", "0"] {
        succeed(bed.layered(&native).args(["threads", "-"]).env("FPGA_ADD_PROFILING", profiling));
    }
    assert!(!bitstreams(&bed.collector.unix_state()).is_empty());
}

#[test]
fn kernels_are_timed_and_a_binary_is_a_bitstream() {
    let bed = Bed::new();
    let native = bed.native_c();
    let (binary, digest) = bed.binary(&native);
    let run = |profiling: &str, name: Option<&str>| {
        let before = usage(&bed.collector.unix_state());
        let mut command = bed.layered(&native);
        command.arg("run-binary").arg(&binary).env("FPGA_ADD_PROFILING", profiling);
        command
            .env("FPGA_DEVICE_VENDOR", "pocl")
            .env("FPGA_DEVICE_ID", "cpu0")
            .env("FPGA_DEVICE_BOARD", "host");
        if let Some(name) = name {
            command.env("FPGA_BITSTREAM_NAMES", format!("{name}=sha256:{digest}"));
        }
        let begin = Instant::now();
        let busy: u64 = String::from_utf8(succeed(&mut command).stdout).unwrap().trim().parse().unwrap();
        let state = bed.collector.unix_state();
        let used = usage(&state) - before;
        // The first launch and the load come on top; waiting for a processor does not.
        let most = begin.elapsed().as_millis();
        assert!(
            used > busy / 2 && u128::from(used) <= most,
            "{used} ms reported of {busy} to {most} ms: {state}"
        );
        state
    };
    let state = run("1", None);
    let [bitstream] = bitstreams(&state) else { panic!("one bitstream: {state}") };
    assert_eq!(bitstream["digest"], digest[..32]);
    let device = &state["devices"][0];
    assert_eq!(
        (&device["id"], &device["vendor"], &device["board"]),
        (&"cpu0".into(), &"pocl".into(), &"host".into())
    );
    assert_eq!((&device["loaded"], &device["usageMs"]), (&serde_json::json!([0]), &state["usageMs"]));
    let state = run("0", Some("spin"));
    let [bitstream] = bitstreams(&state) else { panic!("one bitstream: {state}") };
    assert_eq!((&bitstream["name"], &bitstream["digest"]), (&"spin".into(), &digest[..32].into()));
}

#[test]
fn building_a_source_is_a_reconfiguration_where_the_environment_says_so() {
    let bed = Bed::new();
    let mut command = bed.layered(&bed.program("vector_add"));
    succeed(
        command.env("FPGA_SOURCE_AS_BITSTREAM", "1").env("POCL_CACHE_DIR", bed.folder.path().join("cache")),
    );
    let state = bed.collector.unix_state();
    let reconfiguration = state["reconfigurationMs"].as_u64().unwrap();
    assert!(reconfiguration > 0 && reconfiguration <= usage(&state), "{state}");
}

#[test]
fn a_kernel_counts_while_it_runs() {
    let bed = Bed::new();
    let mut command = bed.layered(&bed.program("long_task"));
    let told = bed.folder.path().join("told");
    command.args(["--seconds", "60", "--kernel-ms", "10000"]).stdout(File::create(&told).unwrap());
    let _task = Program::start(&mut command);
    until("a running kernel", || std::fs::read_to_string(&told).unwrap().starts_with("running\n"));
    let before = usage(&bed.collector.unix_state());
    until("a kernel's use before its end", || usage(&bed.collector.unix_state()) > before + 1500);
}

#[test]
fn forks_and_exits_without_release_are_safe() {
    let bed = Bed::new();
    let native = bed.native_c();
    let (binary, digest) = bed.binary(&native);
    succeed(bed.layered(&native).arg("fork").arg(&binary));
    let state = bed.collector.unix_state();
    assert!(
        bitstreams(&state).iter().any(|bitstream| bitstream["digest"] == digest[..32]),
        "the child's: {state}"
    );
}

#[test]
fn without_a_collector_or_with_one_that_is_away_the_application_runs_all_the_same() {
    let bed = Bed::new();
    let native = succeed(&mut bed.native(&bed.program("vector_add")));
    assert_eq!(succeed(&mut bed.idle(&bed.program("vector_add"))).stdout, native.stdout);
    assert!(!bed.log().exists(), "it does nothing at all");
    for (variable, value, word) in [
        ("FPGA_COLLECTOR", "nonsense", "off: FPGA_COLLECTOR"),
        ("FPGA_COLLECTOR", "http://127.0.0.1:1", "reports to http://127.0.0.1:1"),
        ("FPGA_DEVICE_MANAGERS", "unix:/nowhere", "off: FPGA_DEVICE_MANAGERS"),
    ] {
        let mut command = bed.layered(&bed.program("vector_add"));
        assert_eq!(succeed(command.env(variable, value)).stdout, native.stdout);
        let log = std::fs::read_to_string(bed.log()).unwrap();
        assert!(log.contains(word), "{log}");
    }
    assert_eq!(usage(&bed.collector.unix_state()), 0);
}

//! Runs the programs of tests/opencl-programs, which don't know about kube-fpga, natively and through the remote
//! library: over a unix socket with and without shared memory, and over TCP. Programs that succeed natively must
//! succeed remotely.
//!
//! `RUNTIME=intel-fpga` runs the tests over Intel's FPGA emulator.

use fpga_test_kit::Manager;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::programs::{built, repository};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
use tokio::process::Command;

/// Timeout for programs that don't detect by themselves that they hang.
const TOO_LONG: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Native,
    /// Bulk data uses shared memory, and messages a ring in it.
    Unix,
    /// Bulk data uses shared memory, and messages the socket.
    UnixWithoutRing,
    /// All data uses the socket.
    UnixWithoutSharedMemory,
    Tcp,
}

const WAYS: [Way; 5] = [Way::Native, Way::Unix, Way::UnixWithoutRing, Way::UnixWithoutSharedMemory, Way::Tcp];

/// A command that runs `program` in this way; the caller adds arguments.
fn command(way: Way, runtime: Runtime, program: &Path) -> Command {
    if way == Way::Native {
        let mut command = Command::new(program);
        if runtime == Runtime::Pocl {
            command.env("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd");
        } else {
            let intel = repository().join("build/intel-opencl");
            command.env("OCL_ICD_VENDORS", intel.join("icd").join(runtime.to_string()));
            command.env("LD_LIBRARY_PATH", intel.join("lib"));
        }
        return command;
    }
    let mut command = Command::new(built("fpga-device-manager").unwrap());
    command.args(["exec", "--runtime", &runtime.to_string()]);
    match way {
        Way::Native | Way::Unix => {}
        Way::UnixWithoutRing => drop(command.env("FPGA_COMMAND_RING", "off")),
        Way::UnixWithoutSharedMemory => drop(command.args(["--shared-memory", "off"])),
        Way::Tcp => drop(command.arg("--tcp")),
    }
    command.arg("--").arg(program);
    command
}

async fn run(way: Way, program: PathBuf, arguments: &[&str]) -> Output {
    let runtime = Runtime::from_env().unwrap();
    let mut command = command(way, runtime, &program);
    let running = command.args(arguments).kill_on_drop(true).output();
    match tokio::time::timeout(TOO_LONG, running).await {
        Ok(output) => output.unwrap(),
        Err(_) => panic!("{} {arguments:?} ({way:?}) ran longer than {TOO_LONG:?}", program.display()),
    }
}

/// Runs a program of tests/opencl-programs in all ways; each run must exit with 0.
async fn passes(program: &str, arguments: &[&str]) {
    runs_in_all_ways(artifacts::opencl_programs().unwrap().join(program), arguments).await;
}

/// Runs a program in all ways; each run must exit with 0.
pub async fn runs_in_all_ways(path: PathBuf, arguments: &[&str]) {
    let program = path.display();
    for way in WAYS {
        let output = run(way, path.clone(), arguments).await;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success(), "{program} ({way:?}), {}:\n{text}", output.status);
    }
}

/// Defines a test for each program.
macro_rules! programs {
    ($($test:ident: $program:literal [$($argument:literal),*];)*) => {
        $(#[tokio::test]
        async fn $test() {
            passes($program, &[$($argument),*]).await;
        })*
    };
}

programs! {
    vectors_add_up: "vector_add" [];
    a_vector_of_one_adds_up: "vector_add" ["--size", "1"];
    kernels_run_one_by_one: "null_kernel" ["--iterations", "200", "--warmup", "10"];
    kernels_run_in_batches: "null_kernel" ["--pipelined", "--iterations", "5000"];
    four_bytes_go_round: "write_kernel_read" ["--iterations", "200", "--warmup", "10"];
    small_buffers_come_back_as_they_went: "transfers" ["--iterations", "40"];
    middling_buffers_come_back_as_they_went: "transfers" ["--large", "--iterations", "40"];
    pitched_rectangles_come_back_as_they_went: "rect" ["--iterations", "2"];
    kernels_compute_the_same_with_and_without_transfers: "kernels" ["--milliseconds", "20"];
    large_buffers_come_back_as_they_went: "bandwidth" ["--mib", "33", "--iterations", "2"];
    touched_pages_stay_touched: "map_touch" ["--mib", "9", "--iterations", "3"];
    queues_that_wait_for_each_other_end: "two_queues_deadlock" [];
    a_user_event_holds_back_only_what_waits_for_it: "user_event_deadlock" [];
    long_kernels_end: "long_task" ["--seconds", "1", "--kernel-ms", "50"];
    nothing_fails_while_the_device_is_there: "error_exit" ["--seconds", "1"];
    times_are_in_order: "native_events" [];
    callbacks_come_once: "callback_status" [];
    maps_hold_the_right_bytes: "map_unmap" [];
    images_hold_the_right_pixels: "images" [];
    programs_are_compiled_and_linked_apart: "compile_link" [];
    objects_live_as_long_as_they_are_used: "retain_release" [];
    threads_share_context_queues_and_buffers: "threads" [];
    no_failed_launch_is_hidden: "hidden_failure" [];
    blocking_reads_at_exit_have_ended_when_they_return: "at_exit" [];
    many_buffers_are_released_one_by_one: "many_buffers" [];
    unusual_sources_are_built: "sources" [];
}

/// Calls for which a runtime returns another code than the standard, with the standard's code.
const BY_THE_STANDARD: [(&str, i32); 7] = [
    // CL_SUCCESS: hints about an allocation
    ("migrate", 0),
    ("advise", 0),
    // CL_INVALID_VALUE
    ("copy to NULL", -30),
    // CL_INVALID_WORK_GROUP_SIZE
    ("local size 0", -54),
    // CL_INVALID_VALUE
    ("fill with three bytes", -30),
    ("rectangle beyond the end", -30),
    // CL_INVALID_OPERATION
    ("map what the host may only write", -59),
];

#[tokio::test]
async fn wrong_and_empty_enqueue_calls_get_the_same_codes_natively_and_remotely() {
    let lines = same_codes("enqueue_errors").await;
    assert!(lines > 60, "{lines}");
}

#[tokio::test]
async fn unified_shared_memory_does_the_same_natively_and_remotely() {
    let lines = same_codes("usm").await;
    let is_absent = Runtime::from_env().unwrap() == Runtime::Pocl;
    assert_eq!(lines, if is_absent { 1 } else { 16 });
}

/// Lines of the program `prints`.
const PRINTED_LINES: usize = 3025;

/// Checks that a program prints the same lines in all ways, except for [`BY_THE_STANDARD`]. Returns their number.
async fn same_codes(program: &str) -> usize {
    let program = artifacts::opencl_programs().unwrap().join(program);
    let lines = async |way| {
        let output = run(way, program.clone(), &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{way:?}, {}:\n{error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    };
    let native = lines(Way::Native).await;
    let expected: Vec<String> = native
        .lines()
        .map(|line| {
            let name = line.split(": ").next().unwrap();
            match BY_THE_STANDARD.iter().find(|(known, _)| *known == name) {
                Some((name, code)) => format!("{name}: {code}"),
                None => line.to_owned(),
            }
        })
        .collect();
    for way in &WAYS[1..] {
        let remote = lines(*way).await;
        assert_eq!(remote.lines().collect::<Vec<_>>(), expected, "{way:?}");
    }
    expected.len()
}

#[tokio::test]
async fn what_kernels_print_comes_before_what_the_host_prints_after_them() {
    assert_eq!(same_codes("prints").await, PRINTED_LINES);
}

#[tokio::test]
async fn what_kernels_print_in_the_process_of_a_tenant_reaches_the_program() {
    let manager = Manager::start(&["--isolate", "process"]);
    let vendors = tempfile::tempdir().unwrap();
    let driver = built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(vendors.path().join("fpga.icd"), driver.display().to_string()).unwrap();
    let program = artifacts::opencl_programs().unwrap().join("prints");
    let native = run(Way::Native, program.clone(), &[]).await.stdout;
    let remote = Command::new(program)
        .env("OCL_ICD_VENDORS", vendors.path())
        .env("FPGA_DEVICE_MANAGERS", manager.address())
        .output()
        .await
        .unwrap();
    let error = String::from_utf8_lossy(&remote.stderr);
    assert!(remote.status.success(), "{}:\n{error}", remote.status);
    assert_eq!(String::from_utf8_lossy(&remote.stdout), String::from_utf8_lossy(&native));
    assert_eq!(String::from_utf8_lossy(&native).lines().count(), PRINTED_LINES);
}

#[tokio::test]
async fn packets_go_through_host_pipes_natively_and_remotely() {
    let lines = same_codes("host_pipes").await;
    let is_absent = Runtime::from_env().unwrap() != Runtime::IntelFpga;
    assert_eq!(lines, if is_absent { 1 } else { 18 });
}

/// One process runs at most so many random programs, so that it ends within [`TOO_LONG`].
const PROGRAMS_PER_PROCESS: u32 = 100;

/// A number from the environment.
fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Runs `count` random programs from this seed on in one process, and returns what they print.
async fn random_programs(way: Way, program: &str, seed: u32, count: u32) -> String {
    let path = artifacts::opencl_programs().unwrap().join(program);
    let arguments = ["--seed", &seed.to_string(), "--cases", &count.to_string()];
    let output = run(way, path, &arguments).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way:?} {arguments:?}: {}\n{error}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), usize::try_from(count).unwrap(), "{text}");
    text
}

#[tokio::test]
async fn random_programs_leave_the_same_bytes_and_events_natively_and_remotely() {
    let (first, cases) = (number("FPGA_RANDOM_SEED", 1), number("FPGA_RANDOM_PROGRAMS", 40));
    for seed in (first..first + cases).step_by(PROGRAMS_PER_PROCESS as usize) {
        let count = PROGRAMS_PER_PROCESS.min(first + cases - seed);
        let native = random_programs(Way::Native, "random_program", seed, count).await;
        for way in &WAYS[1..] {
            let remote = random_programs(*way, "random_program", seed, count).await;
            assert_eq!(remote, native, "{way:?}");
        }
    }
}

/// Runs random programs that compare their host memory with a model. Each way over each runtime has seeds of its own. The
/// rung runs 13 of these tests over three runtimes: 10,010 programs.
async fn bytes_of_host_memory_are_right(way: Way) {
    let runtime = Runtime::from_env().unwrap();
    let cases = number("FPGA_RANDOM_PROGRAMS", 770);
    let first = number("FPGA_RANDOM_SEED", 1 + runtime as u32 * 10_000_000 + way as u32 * 1_000_000);
    for seed in (first..first + cases).step_by(PROGRAMS_PER_PROCESS as usize) {
        random_programs(way, "random_host_memory", seed, PROGRAMS_PER_PROCESS.min(first + cases - seed))
            .await;
    }
}

#[tokio::test]
async fn random_commands_on_host_memory_do_natively_what_the_model_says() {
    bytes_of_host_memory_are_right(Way::Native).await;
}

#[tokio::test]
async fn random_commands_on_host_memory_are_right_over_the_ring() {
    bytes_of_host_memory_are_right(Way::Unix).await;
}

#[tokio::test]
async fn random_commands_on_host_memory_are_right_without_the_ring() {
    bytes_of_host_memory_are_right(Way::UnixWithoutRing).await;
}

#[tokio::test]
async fn random_commands_on_host_memory_are_right_without_shared_memory() {
    bytes_of_host_memory_are_right(Way::UnixWithoutSharedMemory).await;
}

#[tokio::test]
async fn random_commands_on_host_memory_are_right_over_tcp() {
    bytes_of_host_memory_are_right(Way::Tcp).await;
}

#[tokio::test]
async fn a_small_stack_and_few_descriptors_give_an_error_at_worst() {
    let programs = artifacts::opencl_programs().unwrap();
    let succeeds = async |way, program: &str, arguments: &[&str]| {
        let output = run(way, programs.join(program), arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way:?} {program} {arguments:?}: {}\n{error}", output.status);
    };
    for way in &WAYS[1..] {
        succeeds(*way, "small_stack", &["--kib", "128"]).await;
        succeeds(*way, "few_descriptors", &[]).await;
    }
    // Over a socket, a debug build aborts by itself when it finds that the program has closed its descriptors.
    succeeds(Way::Unix, "few_descriptors", &["--close"]).await;
}

#[tokio::test]
async fn the_remote_library_keeps_to_the_standard_where_a_runtime_does_not() {
    let programs = artifacts::opencl_programs().unwrap();
    for program in ["user_event_deadlock", "callback_status", "images", "compile_link"] {
        let output = run(Way::Unix, programs.join(program), &["--strict"]).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} --strict, {}:\n{error}", output.status);
    }
}

#[tokio::test]
async fn clinfo_lists_the_device_under_its_own_name() {
    let name = async |way| {
        let output = run(way, "clinfo".into(), &["--raw"]).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "clinfo ({way:?}), {}:\n{text}{error}", output.status);
        let line = text.lines().find(|line| line.contains("CL_DEVICE_NAME"));
        let line = line.unwrap_or_else(|| panic!("clinfo ({way:?}) names no device:\n{text}{error}"));
        line.rsplit("CL_DEVICE_NAME").next().unwrap().trim().to_owned()
    };
    let native = name(Way::Native).await;
    assert!(!native.is_empty());
    assert_eq!(name(Way::Unix).await, native);
}

//! The functions of tests/functions, which don't know about kube-fpga, over the native runtime and through the remote
//! library: both compute what the reference does.
//!
//! `RUNTIME=intel-fpga` runs the tests over Intel's FPGA emulator.

use fpga_test_kit::patience;
use fpga_tests::functions::{Function, Numbers, cnn};
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::{Case, FUNCTION_PORT};
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::programs::{built, repository};
use std::path::Path;

#[derive(Debug, Clone, Copy)]
enum Way {
    Native,
    /// Bulk data uses shared memory.
    Unix,
    Tcp,
}

/// The command line that runs a function in this way.
fn command(way: Way, runtime: Runtime, function: &Path, log: &Path) -> ProcessSpec {
    if matches!(way, Way::Native) {
        let spec = ProcessSpec::new("a native function", function, log);
        if runtime == Runtime::Pocl {
            return spec.env("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd");
        }
        let intel = repository().join("build/intel-opencl");
        return spec
            .env("OCL_ICD_VENDORS", intel.join("icd").join(runtime.to_string()).display().to_string())
            .env("LD_LIBRARY_PATH", intel.join("lib").display().to_string());
    }
    let spec = ProcessSpec::new("a remote function", built("fpga-device-manager").unwrap(), log);
    let spec = spec.args(["exec", "--runtime", &runtime.to_string()]);
    let spec = if matches!(way, Way::Tcp) { spec.arg("--tcp") } else { spec };
    spec.arg("--").arg(function)
}

/// Runs the function in all ways with these cases.
async fn computes_the_same_in_all_ways(function: Function, cases: &[Case]) {
    let runtime = Runtime::from_env().unwrap();
    let program = artifacts::functions().unwrap().join(function.name());
    let bitstream = artifacts::bitstreams(runtime).unwrap().join(format!("{function}.bitstream"));
    let folder = tempfile::tempdir().unwrap();
    let network = Network::claim().unwrap();
    let address = network.control_plane().to_string();
    let http = HttpClient::new(patience());
    for way in [Way::Native, Way::Unix, Way::Tcp] {
        let spec = command(way, runtime, &program, &folder.path().join(format!("{way:?}.log")))
            .env("BITSTREAM", bitstream.display().to_string())
            .env("POD_IP", &address)
            .env("PORT", FUNCTION_PORT.to_string());
        let process = Process::start(&spec).unwrap();
        process
            .wait_ready(&http, &format!("http://{address}:{FUNCTION_PORT}/healthz"), patience())
            .await
            .unwrap();
        for case in cases {
            case.invoke(&http, &address).await.unwrap_or_else(|error| panic!("{way:?}: {error:#}"));
        }
        let refused = http.post(&format!("http://{address}:{FUNCTION_PORT}/"), "no input").await.unwrap();
        assert_eq!(refused.status.as_u16(), 400, "{way:?}: {}", refused.text());
        // What was refused has not harmed the function.
        cases[0].invoke(&http, &address).await.unwrap();
        assert!(process.stop(patience()).await.success(), "{way:?}: {}", process.log_tail());
    }
}

/// Cases of these sizes, each with a seed of its own, the first one twice: buffers grow, shrink, and stay.
fn cases(function: Function, sizes: &[u16]) -> Vec<Case> {
    let new = |(seed, size): (u64, &u16)| Case::new(function, *size, seed).unwrap();
    let mut cases: Vec<Case> = (1..).zip(sizes).map(new).collect();
    cases.push(cases[0].clone());
    cases
}

#[tokio::test]
async fn functions_with_one_kernel_compute_what_the_reference_does() {
    for function in Function::WITH_ONE_KERNEL {
        computes_the_same_in_all_ways(function, &cases(function, &[33, 48, 1])).await;
    }
}

#[tokio::test]
async fn a_search_of_a_graph_by_levels_computes_what_the_reference_does() {
    let cases = cases(Function::Bfs, &[1_000, 20_000, 1, 2]);
    computes_the_same_in_all_ways(Function::Bfs, &cases).await;
}

#[tokio::test]
async fn a_pipeline_of_kernels_in_several_queues_computes_what_the_reference_does() {
    let mut cases = cases(Function::Cnn, &[67, 99]);
    let wider = cnn::make_input_of_width(2, 80, &mut Numbers::new(3));
    cases.push(Case::with_input(Function::Cnn, wider).unwrap());
    // Another picture for the same weights: they stay on the device.
    let mut other = cases[0].input.to_vec();
    other[12..].rotate_left(4 * 67);
    cases.insert(1, Case::with_input(Function::Cnn, other).unwrap());
    computes_the_same_in_all_ways(Function::Cnn, &cases).await;
}

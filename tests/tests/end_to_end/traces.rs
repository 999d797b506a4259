//! What a request did is one trace, from a real Envoy and the picker to the function's OpenCL and the board.

use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::envoy::{EnvoySpec, Upstream};
use fpga_tests::testbed::function_service::{self, FunctionEndpoint};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::{Case, FUNCTION_PORT};
use fpga_tests::testbed::network::Network;
use fpga_tests::testbed::picker::Picker;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::run_dir::RunDir;
use fpga_tests::testbed::trace_collector::{ReceivedSpan, TraceCollector};
use fpga_tests::testbed::wait;
use std::net::SocketAddr;

const NAME: &str = "sobel";
const ENVOY_PORT: u16 = 8081;
/// The span of the client that sends the requests.
const CLIENT: &str = "00f067aa0ba902b7";
/// The spans below that of a task.
const PARTS: [&str; 3] = ["wait for a slot", "load", "kernel"];

/// Where a manager listens.
fn socket(run_dir: &RunDir) -> String {
    format!("unix:{}", run_dir.path().join("dm0.sock").display())
}

/// Starts a manager with an empty board.
async fn start_manager(run_dir: &RunDir, otlp: &str, args: &[&str]) -> Process {
    let runtime = Runtime::from_env().unwrap();
    let ready = run_dir.path().join("dm0.ready");
    let name = "fpga-device-manager";
    let manager = ProcessSpec::new(name, built(name).unwrap(), run_dir.log(name))
        .args(["serve", "--device-id", "dm0", "--listen", &socket(run_dir), "--otlp-endpoint", otlp])
        .args(["--runtime", &runtime.argument().unwrap()])
        .args(args)
        .arg("--ready-file")
        .arg(&ready)
        .arg("--bitstreams")
        .arg(artifacts::bitstreams(runtime).unwrap());
    let manager = Process::start(&manager).unwrap();
    wait::until("the device manager to listen", async || {
        manager.check_running()?;
        Ok(ready.exists().then_some(()))
    })
    .await
    .unwrap();
    manager
}

/// Starts a function over the manager of the run. What it does outside of requests is part of the trace.
async fn start_function(
    run_dir: &RunDir,
    function: Function,
    address: SocketAddr,
    trace: Option<&str>,
) -> Process {
    let name = function.name();
    let vendors = run_dir.path().join("icd");
    std::fs::create_dir_all(&vendors).unwrap();
    let icd = built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(vendors.join("fpga.icd"), format!("{}\n", icd.display())).unwrap();
    let bitstreams = artifacts::bitstreams(Runtime::from_env().unwrap()).unwrap();
    let program = artifacts::functions().unwrap().join(name);
    let process = ProcessSpec::new(name, program, run_dir.log(name))
        .env("BITSTREAM", bitstreams.join(format!("{name}.bitstream")).display().to_string())
        .env("POD_IP", address.ip().to_string())
        .env("PORT", address.port().to_string())
        .env("OCL_ICD_VENDORS", vendors.display().to_string())
        .env("FPGA_DEVICE_MANAGERS", socket(run_dir));
    let process = match trace {
        Some(trace) => process.env("TRACEPARENT", traceparent(trace, "01")),
        None => process,
    };
    let process = Process::start(&process).unwrap();
    process
        .wait_ready(&HttpClient::new(patience()), &format!("http://{address}/healthz"), patience())
        .await
        .unwrap();
    process
}

fn traceparent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CLIENT}-{flags}")
}

/// Sends a request that is part of a trace, and checks the answer.
async fn send(http: &HttpClient, url: &str, case: &Case, trace: &str, flags: &str) {
    let traceparent = traceparent(trace, flags);
    let answer = http.post_with(url, &[("traceparent", &traceparent)], case.input.clone()).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    case.function.compare(&case.expected, &answer.body).unwrap();
}

/// The spans of a trace, when those of these names have come, and the tasks of all parts of tasks.
async fn whole(collector: &TraceCollector, trace: &str, names: &[&str]) -> Vec<ReceivedSpan> {
    wait::until("the spans of a request", async || {
        let spans = collector.trace(trace);
        let tasks = named(&spans, "task");
        let has_task = |span: &ReceivedSpan| tasks.iter().any(|task| task.id == span.parent);
        let is_whole = names.iter().all(|name| !named(&spans, name).is_empty())
            && PARTS.iter().all(|part| named(&spans, part).into_iter().all(has_task));
        Ok(is_whole.then_some(spans))
    })
    .await
    .unwrap()
}

fn named<'s>(spans: &'s [ReceivedSpan], name: &str) -> Vec<&'s ReceivedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[tokio::test]
async fn a_request_is_one_trace_from_the_front_door_to_the_board_and_only_a_cold_start_has_a_load() {
    let plane = ControlPlane::start_objects_only().await.unwrap();
    let (network, run_dir) = (plane.network(), plane.run_dir());
    let collector = TraceCollector::start().await.unwrap();
    let address = SocketAddr::new(network.node(0).pods().next().unwrap().into(), FUNCTION_PORT);
    let args = ["--slots", "2", "--reconfiguration-time", "20ms"];
    let manager = start_manager(run_dir, collector.endpoint(), &args).await;
    let function = start_function(run_dir, Function::Sobel, address, None).await;
    let replica = FunctionEndpoint { address, node: "n0".to_owned() };
    function_service::create(plane.client(), NAME, NAME, &[replica]).await.unwrap();
    let http = HttpClient::new(patience());
    let kubeconfig = plane.kubeconfig(&Identity::Admin).unwrap();
    let otlp = ["--otlp-endpoint", collector.endpoint()];
    let picker = Picker::start(network.control_plane(), kubeconfig, run_dir, &http, &otlp).await.unwrap();
    let listen: SocketAddr = (network.control_plane(), ENVOY_PORT).into();
    let functions = vec![Upstream { name: NAME.to_owned(), replicas: vec![address] }];
    let envoy = EnvoySpec { listen, functions, picker: Some(picker.address()) };
    let envoy = envoy.start(run_dir).await.unwrap();

    let case = Case::new(Function::Sobel, 33, 1).unwrap();
    let url = format!("http://{listen}/function/{NAME}");
    let [cold, unwanted, warm] = ["c", "d", "e"].map(|digit| digit.repeat(32));
    for (trace, flags) in [(&cold, "01"), (&unwanted, "00"), (&warm, "01")] {
        send(&http, &url, &case, trace, flags).await;
    }
    for (trace, loads) in [(&cold, 1), (&warm, 0)] {
        let spans = whole(&collector, trace, &["request", "choose a replica", "kernel"]).await;
        let [request] = named(&spans, "request")[..] else { panic!("{spans:?}") };
        assert_eq!((request.service.as_str(), request.parent.as_str()), ("fpga-endpoint-picker", CLIENT));
        assert!(request.attributes.contains(&("fpga.function".to_owned(), format!("default/{NAME}"))));
        let [choice] = named(&spans, "choose a replica")[..] else { panic!("{spans:?}") };
        assert_eq!(choice.parent, request.id);
        // The function hands on what it was told, and makes no spans of its own.
        let tasks = named(&spans, "task");
        assert!(!tasks.is_empty() && tasks.iter().all(|task| task.parent == request.id), "{spans:?}");
        assert_eq!(named(&spans, "kernel").len(), 1, "{spans:?}");
        let found = named(&spans, "load");
        assert_eq!(found.len(), loads, "{spans:?}");
        for load in found {
            assert!(load.attributes.contains(&("fpga.bitstream".to_owned(), NAME.to_owned())), "{load:?}");
            assert!(load.times_ns[1] - load.times_ns[0] >= 20_000_000, "{load:?}");
        }
    }
    // All of it was sent before the spans that have come.
    assert!(collector.trace(&unwanted).is_empty());

    for process in [envoy, function, manager] {
        process.kill().await;
    }
    picker.process().kill().await;
    plane.stop().await;
}

#[tokio::test]
async fn with_a_process_for_each_tenant_a_program_that_is_made_and_a_request_that_brings_it_back_into_the_only_slot_have_a_load()
 {
    let (network, run_dir) = (Network::claim().unwrap(), RunDir::new().unwrap());
    let collector = TraceCollector::start().await.unwrap();
    let args = ["--slots", "1", "--isolate", "process"];
    let manager = start_manager(&run_dir, collector.endpoint(), &args).await;
    let mut pods = network.node(0).pods().map(|pod| SocketAddr::new(pod.into(), FUNCTION_PORT));
    let (address, other) = (pods.next().unwrap(), pods.next().unwrap());
    let started = "b".repeat(32);
    let function = start_function(&run_dir, Function::Sobel, address, Some(&started)).await;
    // The function makes its program when it starts, which loads the board.
    let spans = whole(&collector, &started, &["wait for a slot", "load", "task"]).await;
    let [load] = named(&spans, "load")[..] else { panic!("{spans:?}") };
    assert!(load.attributes.contains(&("fpga.bitstream".to_owned(), NAME.to_owned())), "{load:?}");
    assert!(load.times_ns[1] > load.times_ns[0], "{load:?}");
    assert!(named(&spans, "task").iter().all(|task| task.parent == CLIENT), "{spans:?}");
    // The other function's bitstream takes the slot.
    let other = start_function(&run_dir, Function::Matmul, other, None).await;

    let http = HttpClient::new(patience());
    let case = Case::new(Function::Sobel, 33, 1).unwrap();
    let [cold, warm] = ["c", "d"].map(|digit| digit.repeat(32));
    for (trace, loads) in [(&cold, 1), (&warm, 0)] {
        send(&http, &format!("http://{address}"), &case, trace, "01").await;
        let spans = whole(&collector, trace, &["kernel"]).await;
        assert!(spans.iter().all(|span| span.service == "fpga-device-manager"), "{spans:?}");
        for task in named(&spans, "task") {
            assert_eq!(task.parent, CLIENT);
            assert!(task.attributes.iter().any(|(name, _)| name == "fpga.tenant"), "{task:?}");
        }
        let found = named(&spans, "load");
        assert_eq!(found.len(), loads, "{spans:?}");
        for load in found {
            assert!(load.attributes.contains(&("fpga.bitstream".to_owned(), NAME.to_owned())), "{load:?}");
            assert!(load.times_ns[1] > load.times_ns[0], "{load:?}");
        }
    }

    for process in [function, other, manager] {
        process.kill().await;
    }
}

//! The whole loop, in which only the boards are simulated: pods run unmodified OpenCL programs through the remote
//! library over a real runtime, and the programs' timing decides where the next pod is placed. Other tests kill a
//! part of the loop.
//!
//! `RUNTIME=intel-fpga` runs the tests over Intel's FPGA emulator.

use fpga_tests::functions::Function;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use serde_json::{Value, json};
use std::path::PathBuf;

pub struct Bed {
    pub cluster: Cluster,
    runtime: Runtime,
    functions: PathBuf,
    programs: PathBuf,
    bitstreams: PathBuf,
}

impl Bed {
    pub async fn start(nodes: &[&str]) -> Self {
        let runtime = Runtime::from_env().unwrap();
        let bitstreams = artifacts::bitstreams(runtime).unwrap();
        let board = |name: &&str| BoardSpec {
            bitstreams: Some(bitstreams.clone()),
            collector_args: ["--min-write-interval", "500ms"].map(str::to_owned).to_vec(),
            ..BoardSpec::new(name, Some(runtime))
        };
        let spec = ClusterSpec {
            boards: nodes.iter().map(board).collect(),
            weights: "1-2-2".to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: Vec::new(),
        };
        let cluster = Cluster::start(spec).await.unwrap();
        let functions = artifacts::functions().unwrap();
        let programs = artifacts::opencl_programs().unwrap();
        Self { cluster, runtime, functions, programs, bitstreams }
    }

    pub fn function(&self, pod: &str, function: Function) -> Workload {
        let bitstream = self.bitstreams.join(format!("{function}.bitstream"));
        Workload::function(pod, &self.functions.join(function.name()), &bitstream)
            .requires("fpga-vendor", self.runtime.vendor())
    }

    fn program(&self, pod: &str, program: &str, arguments: &[&str]) -> Workload {
        // Joining an absolute path replaces the folder.
        let path = self.programs.join(program).display().to_string();
        let words = std::iter::once(path.as_str()).chain(arguments.iter().copied());
        Workload::accelerated(pod, words).once()
    }

    /// Runs a workload to its end, which must be a success, and returns its output.
    async fn run(&self, workload: &Workload) -> String {
        self.cluster.create(workload).await.unwrap();
        let code = self.cluster.exit_code(workload.name()).await.unwrap();
        let log = self.cluster.boards[0].node.pod_dir(workload.name()).join("main.log");
        let output = std::fs::read_to_string(log).unwrap_or_default();
        assert_eq!(code, 0, "{}: {output}", workload.name());
        output
    }

    /// Creates a function and calls it once. Returns its address and the verified case.
    pub async fn answering_function(&self, pod: &str) -> (String, Case) {
        self.cluster.create(&self.function(pod, Function::Sobel)).await.unwrap();
        let address = self.cluster.ready_address(pod).await.unwrap();
        let case = Case::new(Function::Sobel, 256, 1).unwrap();
        case.invoke(self.cluster.http(), &address).await.unwrap();
        (address, case)
    }

    /// Waits until a program on the first node has printed something.
    async fn has_printed(&self, pod: &str, what: &str) {
        let log = self.cluster.boards[0].node.pod_dir(pod).join("main.log");
        wait::until(what, async || {
            Ok(std::fs::read_to_string(&log).is_ok_and(|text| !text.is_empty()).then_some(()))
        })
        .await
        .unwrap();
    }

    /// The state of a node by its collector.
    async fn state(&mut self, node: &str) -> Value {
        let url = self.cluster.board(node).unwrap().collector_url("/v1/state");
        self.cluster.http().get(&url).await.unwrap().json().unwrap()
    }

    /// The node's annotation.
    async fn annotation(&self, node: &str) -> Option<Value> {
        let annotations = self.cluster.nodes().get(node).await.unwrap().metadata.annotations?;
        serde_json::from_str(annotations.get("fpga-scheduling.io/node-state")?).ok()
    }

    pub async fn wait_until_annotated(
        &self,
        node: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let look = async || Ok(self.annotation(node).await.filter(|state| holds(state)));
        let result = wait::until(&format!("the annotation of {node}: {what}"), look).await;
        match result {
            Ok(state) => state,
            Err(error) => panic!("{error:#}; it is {:?}", self.annotation(node).await),
        }
    }
}

pub fn usage(state: &Value) -> u64 {
    state["usageMs"].as_u64().unwrap()
}

pub fn knows(state: &Value, bitstream: &str) -> bool {
    state["bitstreams"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == bitstream))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_pod_goes_where_the_boards_timing_says() {
    let mut bed = Bed::start(&["n1", "n2"]).await;
    bed.cluster.create(&bed.function("sobel-1", Function::Sobel)).await.unwrap();
    let busy = bed.cluster.node_of("sobel-1").await.unwrap();
    let idle = if busy == "n1" { "n2" } else { "n1" };
    let address = bed.cluster.ready_address("sobel-1").await.unwrap();
    let case = Case::new(Function::Sobel, 512, 1).unwrap();
    for _ in 0..20 {
        case.invoke(bed.cluster.http(), &address).await.unwrap();
    }

    // Events reach the window and the annotation.
    let state = bed.wait_until_annotated(&busy, "used, with the bitstream", |state| {
        usage(state) > 0 && knows(state, "sobel")
    });
    let state = state.await;
    assert!(state["reconfigurationMs"].as_u64().unwrap() >= 10, "one reconfiguration of 10 ms: {state}");
    assert_eq!(usage(&bed.wait_until_annotated(idle, "there", |_| true).await), 0);

    // A large pod on the idle node makes kube-scheduler's own scores prefer the busy node. They decide where our
    // scores are equal.
    bed.cluster.create(&Workload::ordinary("large", ["sleep", "1000"]).cpu("48").on(idle)).await.unwrap();
    bed.cluster.set_weights("0-0-0").await.unwrap();
    bed.cluster.create(&bed.function("matmul-0", Function::Matmul)).await.unwrap();
    assert_eq!(bed.cluster.node_of("matmul-0").await.unwrap(), busy, "without our scores");
    bed.cluster.delete("matmul-0").await.unwrap();
    bed.cluster.set_weights("1-2-2").await.unwrap();

    // Annotation, score, placement: another function is placed on the idle node, by usage and reconfiguration.
    bed.cluster.create(&bed.function("matmul-1", Function::Matmul)).await.unwrap();
    assert_eq!(bed.cluster.node_of("matmul-1").await.unwrap(), idle);
    let address = bed.cluster.ready_address("matmul-1").await.unwrap();
    Case::new(Function::Matmul, 64, 2).unwrap().invoke(bed.cluster.http(), &address).await.unwrap();

    // With weights that favour locality, the same function is placed on the node with its bitstream, though that is
    // busy.
    bed.wait_until_annotated(idle, "used, with the bitstream", |state| knows(state, "matmul")).await;
    bed.cluster.delete("large").await.unwrap();
    bed.cluster.create(&Workload::ordinary("large-2", ["sleep", "1000"]).cpu("48").on(&busy)).await.unwrap();
    bed.cluster.set_weights("8-1-1").await.unwrap();
    for pod in ["sobel-2", "sobel-3"] {
        bed.cluster.create(&bed.function(pod, Function::Sobel)).await.unwrap();
        assert_eq!(bed.cluster.node_of(pod).await.unwrap(), busy);
    }
    let url = bed.cluster.extender_url("/explain/default/sobel-3");
    let explained = bed.cluster.http().get(&url).await.unwrap().text();
    assert!(explained.contains("n1") && explained.contains("n2"), "{explained}");
    for function in Function::ALL {
        let pod = format!("{function}-all");
        bed.cluster.create(&bed.function(&pod, function)).await.unwrap();
        let address = bed.cluster.ready_address(&pod).await.unwrap();
        Case::new(function, 48, 3).unwrap().invoke(bed.cluster.http(), &address).await.unwrap();
    }
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_collector_loses_nothing_and_counts_nothing_twice() {
    let mut bed = Bed::start(&["n1"]).await;
    bed.cluster.create(&bed.function("sobel-1", Function::Sobel)).await.unwrap();
    let address = bed.cluster.ready_address("sobel-1").await.unwrap();
    let case = Case::new(Function::Sobel, 256, 1).unwrap();
    let http = bed.cluster.http().clone();
    for _ in 0..5 {
        case.invoke(&http, &address).await.unwrap();
    }
    // The test reports events of its own, whose sum is known to the millisecond. They don't overlap: the window
    // limits overlapping events to what the slots can do.
    let now = k8s_openapi::jiff::Timestamp::now().as_millisecond();
    let events: Vec<Value> = (1..=100)
        .map(|seq| {
json!({
                "timestamp_ms": now - 7 * (100 - seq), "duration_ms": 7, "reconfiguration_ms": 0, "bitstream_identifier": "sha256-test",
                "reporter": 0xabc, "seq": seq, "task": seq, "device": "test",
            })
        })
        .collect();
    let body = serde_json::to_vec(&events).unwrap();
    let url = bed.cluster.board("n1").unwrap().collector_url("/v1/events");
    let answer = http.post(&url, body.clone()).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    assert_eq!(answer.json().unwrap()["accepted"], 100);
    // An invalid event is refused with a reason and counts nothing.
    for garbage in ["", "{", "7", "[{}]", "{\"timestamp_ms\": -1}"] {
        let answer = http.post(&url, garbage).await.unwrap();
        assert_eq!(answer.status.as_u16(), 400, "{garbage:?}: {}", answer.text());
        assert!(answer.json().unwrap()["error"].is_string());
    }
    let oversized = http.post(&url, vec![b'['; (1 << 20) + 1]).await.unwrap();
    assert_eq!(oversized.status.as_u16(), 413);
    let before = bed.state("n1").await;
    assert!(usage(&before) >= 700, "{before}");

    bed.cluster.board("n1").unwrap().kill_collector().await;
    for _ in 0..10 {
        case.invoke(&http, &address).await.unwrap();
    }
    bed.cluster.board("n1").unwrap().start_collector().await.unwrap();
    let after = bed.state("n1").await;
    assert!(usage(&after) >= usage(&before), "lost: {before} became {after}");
    let answer = http.post(&url, body).await.unwrap().json().unwrap();
    assert_eq!((&answer["accepted"], &answer["duplicates"]), (&json!(0), &json!(100)));

    // In the end the collector's sum equals the device manager's: no event is lost or counted twice.
    let manager = bed.cluster.boards[0].manager_metrics_url();
    let collector = bed.cluster.boards[0].collector_url("/v1/state");
    let mut last = (0.0, 0.0);
    let equal = async || {
        let held = http.get(&manager).await?.metric("fpga_device_manager_slot_seconds_total") * 1000.0;
        let state = http.get(&collector).await?.json()?;
        last = (f64::from(u32::try_from(usage(&state))?) - 700.0, held);
        // Events have whole milliseconds, so the sums may differ by one.
        Ok(((last.0 - last.1).abs() < 2.0).then_some(()))
    };
    let result = wait::until("the collector's sum to be the device manager's", equal).await;
    result.unwrap_or_else(|error| panic!("{error:#}; collector and device manager, ms: {last:?}"));
    let state = bed.wait_until_annotated("n1", "written by the new collector", |state| {
        state["boot"].as_u64() > before["boot"].as_u64() && knows(state, "sobel")
    });
    assert!(usage(&state.await) >= usage(&before));
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_harms_nobody_else() {
    let bed = Bed::start(&["n1"]).await;
    let (address, case) = bed.answering_function("sobel-1").await;
    let http = bed.cluster.http().clone();

    bed.cluster.create(&bed.program("victim", "long_task", &["--seconds", "60"])).await.unwrap();
    bed.cluster
        .wait_for_pod("victim", "running", |pod| format!("{:?}", pod.status).contains("running: Some"))
        .await
        .unwrap();
    bed.has_printed("victim", "the victim's task to run").await;
    case.invoke(&http, &address).await.unwrap();
    let metrics = bed.cluster.boards[0].manager_metrics_url();
    let sessions = async || anyhow::Ok(http.get(&metrics).await?.metric("fpga_device_manager_sessions"));
    assert_eq!(sessions().await.unwrap().to_string(), "2");
    // Grace period 0 sends SIGKILL at once, in the middle of a task.
    let force = kube::api::DeleteParams::default().grace_period(0);
    bed.cluster.pods().delete("victim", &force).await.unwrap();
    for _ in 0..10 {
        case.invoke(&http, &address).await.unwrap();
    }
    wait::until(
        "the victim's session to be cleaned up",
        async || Ok((sessions().await? < 1.5).then_some(())),
    )
    .await
    .unwrap();
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_device_manager_is_an_opencl_error_and_not_a_hang() {
    let mut bed = Bed::start(&["n1"]).await;
    let (address, case) = bed.answering_function("sobel-1").await;
    let http = bed.cluster.http().clone();
    // A C program with default signal handling; it works until it gets an error and then exits with 3.
    bed.cluster.create(&bed.program("watcher", "error_exit", &[])).await.unwrap();
    bed.has_printed("watcher", "the watcher to work").await;

    bed.cluster.board("n1").unwrap().kill_device_manager().await;
    assert_eq!(bed.cluster.exit_code("watcher").await.unwrap(), 3);
    let error = case.invoke(&http, &address).await.unwrap_err();
    assert!(!format!("{error:#}").contains("did not answer in"), "{error:#}");

    // When the device manager is back, the kubelet restarts the function's process, and the function works.
    bed.cluster.board("n1").unwrap().start_device_manager().await.unwrap();
    wait::until("the function to work again", async || {
        let address = bed.cluster.ready_address("sobel-1").await?;
        Ok(Some(case.invoke(&http, &address).await?))
    })
    .await
    .unwrap();
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_programs_that_must_end_end() {
    let bed = Bed::start(&["n1"]).await;
    let programs = [
        "vector_add",
        "two_queues_deadlock",
        "user_event_deadlock",
        "native_events",
        "callback_status",
        "map_unmap",
        "retain_release",
    ];
    for program in programs {
        let pod = program.replace('_', "-");
        bed.run(&bed.program(&pod, program, &[])).await;
    }
    // Some programs over TCP, and clinfo, which users try first.
    let over_tcp =
        |workload: Workload| workload.env("FPGA_DEVICE_MANAGERS", bed.cluster.boards[0].tcp_address());
    for program in ["vector_add", "map_unmap"] {
        let pod = format!("{}-tcp", program.replace('_', "-"));
        bed.run(&over_tcp(bed.program(&pod, program, &[]))).await;
    }
    let list = bed.run(&bed.program("clinfo", "/usr/bin/env", &["clinfo", "-l"])).await;
    assert!(list.contains("Platform #0") && list.contains("Device #0"), "{list}");
    let detail = bed.run(&bed.program("clinfo-all", "/usr/bin/env", &["clinfo"])).await;
    assert!(detail.contains("FPGA"), "our mark is missing: {detail}");
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

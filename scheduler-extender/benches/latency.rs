//! Measures how long kube-scheduler waits for an answer: filter and prioritize with 100, 1,000 and 5,000 node names,
//! and with 5,000 whole nodes, over HTTP on loopback with one persistent connection. Each is compared with a handler
//! that reads the body and returns fixed bytes of the same length.
//!
//! Calls to both alternate, so that other load on the machine affects both. Every node has a different state, with
//! the bitstreams of two boards and 30 slices.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark that can't run should say so and end"
)]

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use fpga_core::decide::DecisionRules;
use fpga_core::expected_load::PlacedPod;
use fpga_core::signals::AskedKind;
use fpga_core::units::{Millis, MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::ports::serve::serve;
use fpga_scheduler_extender::routes::{self, Routes};
use fpga_scheduler_extender::verbs::answer;
use fpga_scheduler_extender::wire::Mode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 5_000;
/// Number of FPGA pods on each node.
const PODS_PER_NODE: usize = 10;
const SIZES: [usize; 3] = [100, 1_000, 5_000];
const WARM_UP: usize = 200;
const CALLS: usize = 2_000;
/// Number of calls with whole nodes, whose requests have 31 MB each.
const FULL_CALLS: usize = 60;

fn main() {
    // `cargo test` runs benchmarks to check that they work, for which a few calls suffice.
    let calls = if std::env::args().any(|arg| arg == "--bench") { CALLS } else { 3 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let state = cluster();
    let routes = Routes { prefix: String::new(), max_body_bytes: 64 << 20 };
    let extender = start(&runtime, routes::router(Arc::clone(&state), &routes));

    println!("extender latency over HTTP on loopback, {calls} calls each, microseconds");
    println!(
        "{:<11} {:>6}  {:>13} {:>13} {:>13} {:>13} {:>13} {:>13} {:>13}",
        "verb", "names", "min", "p50", "p99", "nothing p50", "nothing p99", "in memory min", "in memory p50"
    );
    // An argument selects the rows to measure, as in other benchmarks: `-- prioritize-5000`.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    for verb in [Verb::Filter, Verb::Prioritize] {
        for size in SIZES.into_iter().filter(|size| format!("{}-{size}", verb.name()).contains(&only)) {
            let row =
                measure(&runtime, &state, extender, verb, &request(size, Mode::Names).into(), size, calls);
            println!("{:<11} {size:>6} {row}", verb.name());
        }
        if !format!("{}-whole", verb.name()).contains(&only) {
            continue;
        }
        let row = measure(
            &runtime,
            &state,
            extender,
            verb,
            &request(NODES, Mode::Full).into(),
            NODES,
            calls.min(FULL_CALLS),
        );
        println!("{:<11} {:>6} {row}", verb.name(), "whole");
    }
}

/// Measures one row of the table.
fn measure(
    runtime: &tokio::runtime::Runtime,
    state: &App,
    extender: SocketAddr,
    verb: Verb,
    body: &Bytes,
    size: usize,
    calls: usize,
) -> String {
    let mut ours = Connection::open(extender, verb, body);
    let canned = ours.call();
    check(verb, &canned, size);
    let nothing = start(runtime, do_nothing(canned));
    let mut theirs = Connection::open(nothing, verb, body);
    for _ in 0..WARM_UP.min(calls) {
        ours.call();
        theirs.call();
    }
    let (mut our_times, mut their_times, mut memory_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..calls {
        our_times.push(timed(&mut ours));
        their_times.push(timed(&mut theirs));
        memory_times.push(timed_in_memory(state, verb, body));
    }
    let mut columns = String::new();
    for (times, percents) in [
        (&mut our_times, [0, 50, 99].as_slice()),
        (&mut their_times, &[50, 99]),
        (&mut memory_times, &[0, 50]),
    ] {
        times.sort_unstable();
        for percent in percents {
            write!(columns, " {:>13}", micros(times, *percent)).unwrap();
        }
    }
    columns
}

fn timed(connection: &mut Connection) -> Duration {
    let started = Instant::now();
    connection.call();
    started.elapsed()
}

/// The time to decode, decide and encode, without HTTP.
fn timed_in_memory(state: &App, verb: Verb, body: &Bytes) -> Duration {
    let started = Instant::now();
    answer(state, verb, body).unwrap();
    started.elapsed()
}

fn micros(sorted: &[Duration], percent: usize) -> u128 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)].as_micros()
}

fn start(runtime: &tokio::runtime::Runtime, router: Router) -> SocketAddr {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let never = std::future::pending;
        serve(listener, router, never(), never()).await.unwrap();
    });
    address
}

fn do_nothing(answer: Vec<u8>) -> Router {
    let answer = Bytes::from(answer);
    let handler = move |_body: Bytes| {
        let answer = answer.clone();
        async move { answer }
    };
    let limit = axum::extract::DefaultBodyLimit::disable();
    Router::new().route("/filter", post(handler.clone())).route("/prioritize", post(handler)).layer(limit)
}

fn name(index: usize) -> String {
    format!("node-{index:05}.zone-{}.example.internal", index % 3)
}

fn cluster() -> Arc<App> {
    let started = Instant::now();
    let now =
        move || Moment { now: MonotonicTime::after(started.elapsed()), wall: WallTime(1_760_000_000_000) };
    let state = Arc::new(App::new(DecisionRules::default(), Clock::new(now)));
    for index in 0..NODES {
        let mut node = ObjectMeta { name: Some(name(index)), ..ObjectMeta::default() };
        state.index.apply(node.clone(), Shown::Listed, state.clock.read());
        node.annotations = Some([("fpga-scheduling.io/node-state".to_owned(), node_state(index))].into());
        state.index.apply(node, Shown::Changed, state.clock.read());
    }
    state.index.listed(&(0..NODES).map(name).collect::<HashSet<_>>());
    for index in 0..NODES * PODS_PER_NODE {
        // Half of the pods are older than a window; the others still add expected usage.
        let bound_ago =
            Millis(if index.is_multiple_of(2) { 600_000 } else { (index as u64 * 7_919) % 300_000 });
        let pod = PlacedPod {
            uid: format!("8f4b1c5e-3d2a-4f6b-9c8d-{index:012}"),
            owner: Some(format!("0d9e8f7a-6b5c-4d3e-8f2a-{:012}", index % 500)),
            node: name(index % NODES),
            kind: AskedKind::ANY,
            bitstreams: vec![format!("accelerator-{}", index % 50).parse().unwrap()],
        };
        state.expectations.bound(&pod, bound_ago, state.clock.read().now);
    }
    state.expectations.learn(&state.index, state.clock.read().now);
    state
}

fn node_state(index: usize) -> String {
    let usage: Vec<_> = (0..30).map(|slice| (index * 31 + slice * 7_919) % 40_000).collect();
    let reconfiguration: Vec<_> = (0..30).map(|slice| (index * 17 + slice * 104_729) % 900).collect();
    let bitstreams: Vec<_> = (0..8)
        .map(|slot| {
            let kind = (index + slot) % 50;
            serde_json::json!({"name": format!("accelerator-{kind}"), "digest": format!("{kind:032x}"), "lastUsedAgoMs": slot * 1_000})
        })
        .collect();
    let device = |id: &str, loaded: [u32; 4]| {
        serde_json::json!({"id": id, "vendor": "intel", "platform": "Intel FPGA", "board": "a10", "shell": "1.2", "slots": 4,
            "loaded": loaded, "usageMs": 1, "reconfigurationMs": 1, "queued": 0, "healthy": true})
    };
    serde_json::json!({
        "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 3_600_000, "measuredAtMs": 1, "windowMs": 300_000,
        "usageMs": usage.iter().sum::<usize>(), "reconfigurationMs": reconfiguration.iter().sum::<usize>(),
        "devices": [device("dm0", [0, 1, 2, 3]), device("dm1", [4, 5, 6, 7])], "bitstreams": bitstreams,
        "window": {"bucketMs": 10_000, "usageMs": usage, "reconfigurationMs": reconfiguration},
    })
    .to_string()
}

/// A request with a pod of a real API server that asks for two bitstreams, and `size` nodes as names or whole.
fn request(size: usize, mode: Mode) -> Vec<u8> {
    let recorded = include_str!("../tests/fixtures/filter.node-names.json");
    let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
    let mut request = recorded["request"].clone();
    request["Pod"]["metadata"]["annotations"]["fpga-scheduling.io/bitstreams"] =
        "accelerator-7,accelerator-30".into();
    let names = (0..size).map(|index| name(index * (NODES / size)));
    match mode {
        Mode::Names => request["NodeNames"] = names.collect(),
        Mode::Full => {
            request["NodeNames"] = serde_json::Value::Null;
            request["Nodes"] =
                serde_json::json!({"metadata": {}, "items": names.map(whole_node).collect::<Vec<_>>()});
        }
    }
    request.to_string().into_bytes()
}

/// A recorded node, with images and managed fields as in a real node of 6 KB.
fn whole_node(name: String) -> serde_json::Value {
    let recorded = include_str!("../tests/fixtures/filter.full-nodes.json");
    let recorded: serde_json::Value = serde_json::from_str(recorded).unwrap();
    let mut node = recorded["request"]["Nodes"]["items"][0].clone();
    node["metadata"]["name"] = name.into();
    let image = |index| serde_json::json!({"names": [format!("registry.example/team/image-{index}@sha256:{index:064}")], "sizeBytes": 123_456_789});
    node["status"]["images"] = (0..32).map(image).collect();
    node
}

/// Checks the answer: all nodes pass, all have scores, and the scores are not all the same.
fn check(verb: Verb, answer: &[u8], size: usize) {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
    if verb == Verb::Filter {
        let passed = answer["NodeNames"].as_array().or(answer["Nodes"]["items"].as_array());
        assert_eq!(passed.unwrap().len(), size);
    } else {
        let scores: HashSet<_> =
            answer.as_array().unwrap().iter().map(|node| node["Score"].as_u64()).collect();
        assert_eq!(answer.as_array().unwrap().len(), size);
        assert!(scores.len() > 3, "{scores:?}");
    }
}

/// A persistent connection, as kube-scheduler's client keeps it.
struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr, verb: Verb, body: &[u8]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut head = String::new();
        write!(
            head,
            "POST /{} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            verb.name(),
            body.len()
        )
        .unwrap();
        let request = [head.as_bytes(), body].concat();
        Self { stream: BufReader::with_capacity(1 << 18, stream), request, answer: Vec::new() }
    }

    fn call(&mut self) -> Vec<u8> {
        self.stream.get_mut().write_all(&self.request).unwrap();
        let mut length = None;
        let mut line = String::new();
        let mut first = true;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if std::mem::take(&mut first) {
                assert!(line.starts_with("HTTP/1.1 200"), "{line}");
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().ok();
            }
        }
        self.answer.resize(length.expect("the answer has a length"), 0);
        self.stream.read_exact(&mut self.answer).unwrap();
        self.answer.clone()
    }
}

//! Measures how long kube-scheduler waits for an answer: filter and prioritize with 100 to 20,000 node names and with
//! 5,000 whole nodes, over HTTP on loopback with one persistent connection, and how many answers four connections get.
//!
//! Each row is compared with a handler that reads the body and returns fixed bytes of the same length. Calls to both
//! alternate, so that other load on the machine affects both; so their ratio says more than either. Rows whose ratio is
//! more than 10 % above that of `ratios.json` are named. `--save` writes that file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark that can't run should say so and end"
)]

mod cluster;
mod connection;
mod ratios;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use cluster::{cluster, request, requests};
use connection::Connection;
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::ports::serve::serve;
use fpga_scheduler_extender::routes::{self, Routes};
use fpga_scheduler_extender::verbs::answer;
use fpga_scheduler_extender::wire::Mode;
use ratios::Ratios;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of nodes of the cluster, and of another one.
const NODES: usize = 5_000;
const MANY_NODES: usize = 20_000;
const SIZES: [usize; 4] = [100, 1_000, NODES, MANY_NODES];
const WARM_UP: usize = 200;
const CALLS: usize = 2_000;
/// Number of calls with whole nodes, whose requests have 31 MB each.
const WHOLE_CALLS: usize = 60;
/// Number of connections at once, and of calls of each.
const CONNECTIONS: usize = 4;
const CALLS_AT_ONCE: usize = 500;

fn main() {
    // `cargo test` runs benchmarks to check that they work, for which a few calls suffice.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let calls = |most: usize| if is_bench { most } else { 3 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let [bench, larger] = [NODES, MANY_NODES].map(|nodes| Bench::of(nodes, &runtime));
    // An argument selects the rows to measure, as in other benchmarks: `-- prioritize-5000`.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let mut ratios = Ratios::default();

    println!(
        "extender latency over HTTP on loopback, milliseconds; ratio: p50 against a handler that does nothing"
    );
    println!(
        "{:<18} {:>8} {:>8} {:>8} {:>12} {:>12} {:>13} {:>6}",
        "row", "min", "p50", "p99", "nothing p50", "nothing p99", "in memory min", "ratio"
    );
    for verb in [Verb::Filter, Verb::Prioritize] {
        let names = SIZES.map(|size| (size.to_string(), size, Mode::Names, calls(CALLS)));
        let whole = ("whole".to_owned(), NODES, Mode::Full, calls(WHOLE_CALLS));
        for (label, size, mode, calls) in names.into_iter().chain([whole]) {
            let row = format!("{}-{label}", verb.name());
            if row.contains(&only) {
                let bench = if size > NODES { &larger } else { &bench };
                // prioritize gets the nodes in the order in which filter returned them.
                let bodies = match (verb, mode) {
                    (Verb::Filter, Mode::Names) => requests(bench.nodes, size),
                    _ => vec![request(bench.nodes, size, mode)],
                };
                ratios.put(&row, bench.measure(&row, verb, &bodies, size, calls));
            }
        }
    }
    for verb in [Verb::Filter, Verb::Prioritize] {
        let row = format!("{}-at-once", verb.name());
        if row.contains(&only) {
            let calls = calls(CALLS_AT_ONCE);
            ratios.put(&row, bench.at_once(&row, verb, &[request(NODES, NODES, Mode::Names)], calls));
        }
    }
    match std::env::args().any(|arg| arg == "--save") {
        true => ratios.save(),
        false => ratios.compare(),
    }
}

/// An extender that knows a cluster.
struct Bench<'r> {
    nodes: usize,
    runtime: &'r Runtime,
    state: Arc<App>,
    extender: SocketAddr,
}

impl<'r> Bench<'r> {
    fn of(nodes: usize, runtime: &'r Runtime) -> Self {
        let state = cluster(nodes);
        let routes = Routes { prefix: String::new(), max_body_bytes: 64 << 20 };
        let extender = start(runtime, routes::router(Arc::clone(&state), &routes));
        Self { nodes, runtime, state, extender }
    }

    /// Measures and prints one row. Returns the ratio of the medians.
    fn measure(&self, row: &str, verb: Verb, bodies: &[Bytes], size: usize, calls: usize) -> f64 {
        let mut ours = Connection::open(self.extender, verb, bodies);
        let canned = ours.call();
        check(verb, &canned, size);
        let mut theirs = Connection::open(start(self.runtime, do_nothing(canned)), verb, bodies);
        for _ in 0..WARM_UP.min(calls) {
            ours.call();
            theirs.call();
        }
        let (mut our_times, mut their_times, mut memory_times) = (Vec::new(), Vec::new(), Vec::new());
        for call in 0..calls {
            let body = &bodies[call % bodies.len()];
            our_times.push(timed(|| drop(ours.call())));
            their_times.push(timed(|| drop(theirs.call())));
            // Decoding, decision and encoding, without HTTP.
            memory_times.push(timed(|| drop(answer(&self.state, verb, body).unwrap())));
        }
        for times in [&mut our_times, &mut their_times, &mut memory_times] {
            times.sort_unstable();
        }
        let at = |times: &[Duration], percent: usize| {
            times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3
        };
        let ratio = at(&our_times, 50) / at(&their_times, 50);
        println!(
            "{row:<18} {:>8.3} {:>8.3} {:>8.3} {:>12.3} {:>12.3} {:>13.3} {ratio:>6.2}",
            at(&our_times, 0),
            at(&our_times, 50),
            at(&our_times, 99),
            at(&their_times, 50),
            at(&their_times, 99),
            at(&memory_times, 0),
        );
        ratio
    }

    /// Measures and prints the time for each answer on one connection against that on several connections at once.
    fn at_once(&self, row: &str, verb: Verb, bodies: &[Bytes], calls: usize) -> f64 {
        let run = |connections: usize| {
            timed(|| {
                std::thread::scope(|scope| {
                    for _ in 0..connections {
                        scope.spawn(|| {
                            let mut connection = Connection::open(self.extender, verb, bodies);
                            (0..calls).for_each(|_| drop(connection.call()));
                        });
                    }
                });
            })
        };
        run(CONNECTIONS);
        let rates =
            [1, CONNECTIONS].map(|connections| (connections * calls) as f64 / run(connections).as_secs_f64());
        println!(
            "{row:<18} {:.0} answers a second on one connection, {:.0} on {CONNECTIONS}: {:.2} times",
            rates[0],
            rates[1],
            rates[1] / rates[0]
        );
        rates[0] / rates[1]
    }
}

fn timed(call: impl FnOnce()) -> Duration {
    let started = Instant::now();
    call();
    started.elapsed()
}

fn start(runtime: &Runtime, router: Router) -> SocketAddr {
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

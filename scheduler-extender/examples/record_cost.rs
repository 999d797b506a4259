//! Measures the cost of recording: filter and prioritize over 5,000 nodes with and without, while states change, in
//! one process without a port. Prints the processor time of the deciding thread, which other load on the machine does
//! not distort, and ends.
//!
//!     cargo run --release -p fpga-scheduler-extender --example record_cost
#![allow(clippy::unwrap_used, reason = "what fails here ends the measurement")]

use fpga_core::decide::DecisionRules;
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::Clock;
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::record::Recorder;
use fpga_scheduler_extender::verbs;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nix::time::{ClockId, clock_gettime};
use prometheus_client::encoding::text;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: u64 = 5_000;
const CALLS: usize = 600;
/// Pause between two calls: 200 calls and 1,000 states a second.
const PAUSE: Duration = Duration::from_millis(5);
const STATES_PER_CALL: u64 = 5;

fn main() {
    let dir = std::env::temp_dir().join(format!("fpga-record-cost-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let without = measure(None);
    let with = measure(Some(dir.join("decisions.jsonl")));
    std::fs::remove_dir_all(&dir).unwrap();
    for (verb, without, with) in [("filter", &without.0, &with.0), ("prioritize", &without.1, &with.1)] {
        for (name, share) in [("p50", 50), ("p99", 99)] {
            let at = |times: &[Duration]| times[times.len() * share / 100].as_secs_f64() * 1e6;
            let (without, with) = (at(without), at(with));
            println!(
                "{verb:10} {name}: {without:6.0} us without, {with:6.0} us with recording: {:.2}",
                with / without
            );
        }
    }
}

/// The sorted times of filter and of prioritize.
fn measure(file: Option<std::path::PathBuf>) -> (Vec<Duration>, Vec<Duration>) {
    let clock = Clock::system();
    let mut app = App::new(DecisionRules::default(), clock.clone());
    let recorded = file.clone();
    app.recorder = file.map(|file| Recorder::start(file, 4 << 30, clock, &mut app.registry).unwrap());
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node:05}")).collect();
    for node in 0..NODES {
        change(&app, &names, node, 1);
    }
    app.index.listed(&names.iter().cloned().collect());
    app.expectations.listed(&HashSet::new());
    let mut times = (Vec::new(), Vec::new());
    for call in 0..CALLS {
        let pod = json!({"metadata": {"name": format!("p{call}"), "namespace": "d", "uid": format!("u{call}"),
            "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}}});
        let body = json!({"Pod": pod, "NodeNames": names}).to_string().into();
        for (verb, times) in [(Verb::Filter, &mut times.0), (Verb::Prioritize, &mut times.1)] {
            let before = processor_time();
            verbs::answer(&app, verb, &body).unwrap();
            times.push(processor_time() - before);
        }
        for state in 0..STATES_PER_CALL {
            let changed = call as u64 * STATES_PER_CALL + state;
            change(&app, &names, changed % NODES, 2 + changed / NODES);
        }
        std::thread::sleep(PAUSE);
    }
    let mut metrics = String::new();
    text::encode(&mut metrics, &app.registry).unwrap();
    let dropped = metrics.lines().filter(|line| line.starts_with("fpga_extender_record_dropped_total"));
    dropped.for_each(|line| println!("{line}"));
    drop(app);
    if let Some(file) = recorded {
        let bytes = std::fs::metadata(file).unwrap().len();
        println!("the recording of {} decisions has {} MB", 2 * CALLS, bytes >> 20);
    }
    times.0.sort_unstable();
    times.1.sort_unstable();
    times
}

/// The processor time of this thread, as Linux counts it.
fn processor_time() -> Duration {
    // The value in /proc is only as recent as the last tick of the scheduler.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn change(app: &App, names: &[String], node: u64, seq: u64) {
    let usage = node * 7_919 % 100_003 + seq;
    let slices: Vec<u64> = (0..30).map(|slice| (usage + slice) / 30).collect();
    let state = json!({
        "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 60_000, "measuredAtMs": 1, "windowMs": 300_000, "usageMs": usage,
        "reconfigurationMs": usage / 9,
        "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "shell": "1", "slots": 4, "loaded": [0], "healthy": true}],
        "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 0}, {"name": "mm", "lastUsedAgoMs": 1}],
        "window": {"bucketMs": 10_000, "usageMs": slices, "reconfigurationMs": slices},
    });
    let name = names[usize::try_from(node).unwrap()].clone();
    let annotation = [("fpga-scheduling.io/node-state".to_owned(), state.to_string())];
    let meta = ObjectMeta {
        uid: Some(format!("uid-{name}")),
        name: Some(name),
        annotations: Some(annotation.into()),
        ..ObjectMeta::default()
    };
    app.index.apply(meta, Shown::Changed, app.clock.read());
}

//! Measures the cost of streams to a replica: the replica in one process, simulated collectors in another.
//!
//! ```text
//! cargo run --release -p fpga-scheduler-extender --example stream_load -- [COLLECTORS=5000] [SECONDS=20]
//! ```
//! Each collector has a connection of its own and sends a state of about 1.4 KB twice a second. Prints the replica's
//! share of a core and its memory, the time from sending to acknowledgement, and the age of the states that a
//! decision would use. Then the program ends.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a measurement that goes wrong is to stop and say where"
)]

use axum::Router;
use fpga_core::decide::DecisionRules;
use fpga_core::node_state::{decode, encode_whole};
use fpga_core::units::Millis;
use fpga_net::token_file::TokenFile;
use fpga_node_stream::access::Access;
use fpga_node_stream::client::{Address, Credentials, NodeStream};
use fpga_node_stream::server::serve;
use fpga_node_stream::v1::{Introduction, Verdict};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::Clock;
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::routes::{self, Routes};
use fpga_scheduler_extender::stream::IndexReceiver;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tonic::transport::Uri;

// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PACE: Duration = Duration::from_millis(500);
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default| args.get(place).map_or(default, |text| text.parse().unwrap());
    if args.first().is_some_and(|first| first == "replica") {
        return replica(number(1, 0), args[2].clone().into());
    }
    measure(number(0, 5_000), Duration::from_secs(number(1, 20) as u64));
}

fn uid(node: usize) -> String {
    format!("00000000-0000-4000-8000-{node:012}")
}

/// Runs the replica; its index has the nodes that a reflector would have added.
fn replica(nodes: usize, token: PathBuf) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Clock::system();
        let state = Arc::new(App::new(DecisionRules::default(), clock.clone()));
        let names: std::collections::HashSet<String> =
            (0..nodes).map(|node| format!("node-{node}")).collect();
        for node in 0..nodes {
            let meta = ObjectMeta {
                name: Some(format!("node-{node}")),
                uid: Some(uid(node)),
                ..ObjectMeta::default()
            };
            state.index.apply(meta, Shown::Listed, clock.read());
        }
        state.index.listed(&names);
        let (index, metrics) = (Arc::clone(&state.index), Arc::clone(&state.metrics));
        let access = Access::Token(TokenFile::new(token));
        let streams = IndexReceiver { index, metrics, clock }.streams(access);
        let (http, stream) = (listener().await, listener().await);
        println!("{}\n{}", http.local_addr().unwrap(), stream.local_addr().unwrap());
        let router: Router =
            routes::router(state, &Routes { prefix: String::new(), max_body_bytes: 1 << 20 });
        // Standard input closes when the measuring process ends.
        let end = tokio::task::spawn_blocking(|| drop(std::io::stdin().read(&mut [0])));
        tokio::select! {
            result = serve(stream, streams) => result.unwrap(),
            result = async { axum::serve(http, router).await } => result.unwrap(),
            _ = end => {}
        }
    });
    std::process::exit(0);
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn measure(collectors: usize, time: Duration) {
    let token = std::env::temp_dir().join(format!("fpga-stream-load-{}", std::process::id()));
    std::fs::write(&token, "a-token-for-this-measurement").unwrap();
    let mut replica = Command::new(std::env::current_exe().unwrap())
        .args(["replica", &collectors.to_string()])
        .arg(&token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(replica.stdout.take().unwrap()).lines();
    let (http, stream) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
    let pid = replica.id();
    println!("a state has {} bytes", encode_whole(&busy()).unwrap().text.len());

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let took = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let (started, mut all_started) = tokio::sync::watch::channel(0);
        let begin = Instant::now();
        for node in 0..collectors {
            let credentials = Credentials::from(Access::Token(TokenFile::new(&token)));
            let address = Address::from(format!("http://{stream}").parse::<Uri>().unwrap());
            let (took, started) = (Arc::clone(&took), started.clone());
            tokio::spawn(async move {
                let who = Introduction { node: format!("node-{node}"), uid: uid(node) };
                let mut stream = NodeStream::open(&address, &credentials, who).await.unwrap();
                started.send_modify(|started| *started += 1);
                collector(&mut stream, node, &took).await;
            });
            // Collectors start in small groups, as in a cluster, and not all at once.
            if node % 50 == 49 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        all_started.wait_for(|started| *started == collectors).await.unwrap();
        println!("{collectors} streams opened in {:.1} s", begin.elapsed().as_secs_f64());
        // By now the first states of all collectors have arrived.
        tokio::time::sleep(PACE * 4).await;

        took.lock().unwrap().clear();
        let states_before = states_taken(&get(&http, "/metrics"));
        let (cpu, begin) = (cpu_seconds(pid), Instant::now());
        let mut oldest: f64 = 0.0;
        while begin.elapsed() < time {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let metrics = get(&http, "/metrics");
            let name = "fpga_extender_state_age_seconds{source=\"stream\",rank=\"p99\"} ";
            let age = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            oldest = oldest.max(age.parse().unwrap());
        }
        let passed = begin.elapsed().as_secs_f64();
        let share = (cpu_seconds(pid) - cpu) / passed;
        let states = states_taken(&get(&http, "/metrics")) - states_before;
        let mut took = std::mem::take(&mut *took.lock().unwrap());
        took.sort_unstable();
        let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
        println!("updates taken:        {:.0} per second", states / passed);
        println!(
            "replica:              {:.1} % of a core, {} MiB resident",
            share * 100.0,
            resident_mib(pid)
        );
        println!("sent → acknowledged:  p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms", at(50), at(99), at(100));
        println!("age of states, p99:   {:.0} ms at worst of all looks, one a second", oldest * 1000.0);
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(replica.stdin.take());
    replica.wait().unwrap();
    std::fs::remove_file(token).unwrap();
}

/// Sends states of a busy node for ever.
async fn collector(stream: &mut NodeStream, node: usize, took: &Mutex<Vec<Duration>>) {
    let mut state = busy();
    // Collectors send at different times.
    let first = tokio::time::Instant::now() + PACE * u32::try_from(node % 500).unwrap() / 500;
    let mut ticks = tokio::time::interval_at(first, PACE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        state.seq += 1;
        state.measured_at += Millis(500);
        let text = encode_whole(&state).unwrap().text;
        let sent = Instant::now();
        if let Some(answer) = stream.update(text).await.unwrap() {
            assert_eq!(answer.verdict(), Verdict::Taken);
            took.lock().unwrap().push(sent.elapsed());
        }
    }
}

/// A state with two boards, eight bitstreams and thirty time slices.
fn busy() -> fpga_core::node_state::NodeState {
    let device = |id: &str| {
        serde_json::json!({
            "id": id, "vendor": "intel", "platform": "Intel FPGA", "board": "pac_a10", "shell": "1.2.1", "slots": 4,
            "loaded": [0, 1, 2], "usageMs": 123_456, "reconfigurationMs": 1_234, "queued": 3, "healthy": true,
        })
    };
    let bitstreams: Vec<_> = (0..8)
        .map(|i| serde_json::json!({"name": format!("accelerator-{i}"), "digest": format!("{i:032x}"), "lastUsedAgoMs": 1500 * i}))
        .collect();
    let text = serde_json::json!({
        "v": 1, "boot": 1, "seq": 0, "heartbeatMs": 60_000, "measuredAtMs": 1_760_000_000_000_u64, "windowMs": 300_000,
        "usageMs": 246_912, "reconfigurationMs": 2_468, "devices": [device("dm0"), device("dm1")], "bitstreams": bitstreams,
        "window": {"bucketMs": 10_000, "usageMs": vec![8_230; 30], "reconfigurationMs": vec![82; 30]},
    });
    decode(&text.to_string()).unwrap()
}

fn states_taken(metrics: &str) -> f64 {
    let name = "fpga_extender_states_total{source=\"stream\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let ticks: u64 = after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS_PER_SECOND
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

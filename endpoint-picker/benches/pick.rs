//! Measures what a pick costs with 1,000 replicas of 400 functions on 250 boards: the choice alone, and over gRPC at
//! 2,000 requests a second on one core, beside a service that always tells the same endpoint. Each request is a stream
//! of two messages, as of Envoy: the request's headers, whose answer is waited for, and the response's.
//!
//! The services run in processes of their own, all on one core, and are asked in turns from another core, so that other
//! load on the machine affects all. The ratios are of rounds next to each other. The picker is served by one thread, and for
//! comparison by a runtime of two threads; the program's runtime has as many as there are cores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark that can't run should say so and end"
)]

use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::NodeState;
use fpga_core::units::Millis;
use fpga_endpoint_picker::exchange::DESTINATION;
use fpga_endpoint_picker::ext_proc::external_processor_client::ExternalProcessorClient;
use fpga_endpoint_picker::ext_proc::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use fpga_endpoint_picker::ext_proc::processing_request::Request as Said;
use fpga_endpoint_picker::ext_proc::processing_response::Response as Answer;
use fpga_endpoint_picker::ext_proc::{
    CommonResponse, HeaderMap, HeaderMutation, HeaderValue, HeaderValueOption, HeadersResponse, HttpHeaders,
    ProcessingRequest, ProcessingResponse,
};
use fpga_endpoint_picker::function::{Function, FunctionName, Replica};
use fpga_endpoint_picker::metrics::Metrics;
use fpga_endpoint_picker::picker::{Limits, Picker};
use fpga_endpoint_picker::routing::Routing;
use fpga_endpoint_picker::server::Port;
use fpga_endpoint_picker::service::{MAX_STREAMS, Service};
use fpga_endpoint_picker::state::Seen;
use futures::{Stream, StreamExt as _};
use prometheus_client::registry::Registry;
use prost::Message as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

const FUNCTIONS: usize = 400;
const REPLICAS: usize = 1_000;
const BOARDS: usize = 250;
const REQUESTS_PER_SECOND: u32 = 2_000;
const ROUNDS: usize = 12;
/// Clock ticks per second of `/proc/PID/stat`: 100 on all architectures of Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The picker on one thread.
    Picker,
    /// The picker on two threads.
    TwoThreads,
    /// A service that always tells the same endpoint, on one thread.
    Nothing,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Picker, Self::TwoThreads, Self::Nothing];

    const fn name(self) -> &'static str {
        match self {
            Self::Picker => "picker",
            Self::TwoThreads => "two-threads",
            Self::Nothing => "nothing",
        }
    }
}

fn main() {
    let asked = std::env::args().nth(1);
    if let Some(kind) = Kind::ALL.into_iter().find(|kind| asked.as_deref() == Some(kind.name())) {
        return serve(kind);
    }
    // `cargo test` runs benchmarks to check that they work, for which a moment suffices.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (choices, round) = if is_bench { (200_000, 2.5) } else { (500, 0.1) };
    choose_in_memory(choices);
    over_grpc(Duration::from_secs_f64(round));
}

/// The cores of this process and their use: the first one for the services, and the second one for who asks. `None` if there
/// is only one.
fn cores() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Some([cores.next()?, cores.next()?])
}

/// Keeps this thread, and the threads and processes that it starts from now on, on a core.
fn stay_on(core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).unwrap();
}

/// The function with this number. The first ones have most replicas: function `n` has about `REPLICAS / (6 n)`.
fn function(number: usize) -> FunctionName {
    FunctionName::new("default", &format!("function-{number}"))
}

fn bitstream(number: usize) -> BitstreamId {
    BitstreamId::Name(format!("bitstream-{number}"))
}

/// Number of replicas of each function, with [`REPLICAS`] in all.
fn replica_counts() -> Vec<usize> {
    let mut counts = vec![1; FUNCTIONS];
    let mut left = REPLICAS - FUNCTIONS;
    while left > 0 {
        for (number, count) in counts.iter_mut().enumerate() {
            let more = (REPLICAS / (6 * (number + 1))).min(left);
            *count += more;
            left -= more;
            if left == 0 {
                break;
            }
        }
    }
    counts
}

fn picker() -> Arc<Picker> {
    let limits = Limits { waiting: 1 << 20, ..Limits::default() };
    let picker = Picker::new(limits, Metrics::register(&mut Registry::default()));
    let mut next = 0;
    for (number, count) in replica_counts().into_iter().enumerate() {
        let replicas = (next..next + count).map(|replica| Replica {
            address: SocketAddr::from((
                [10, 1, (replica >> 8).to_le_bytes()[0], replica.to_le_bytes()[0]],
                8080,
            )),
            hosts: Vec::new(),
            pod: Some(format!("pod-{replica}").into()),
            node: Some(format!("node-{}", replica * 7 % BOARDS).into()),
            boards: vec!["board-0".into()],
            asks_for_board: true,
        });
        let entry =
            Function { bitstream: Some(bitstream(number)), max_waiting: None, replicas: replicas.collect() };
        next += count;
        picker.with(|state, now| state.set_function(&function(number), &entry, now));
    }
    for board in 0..BOARDS {
        let node = format!("node-{board}");
        let names = (0..4).map(|slot| format!("bitstream-{}", (board * 4 + slot) * 3 % FUNCTIONS));
        let state = NodeState {
            devices: vec![mk_board("board-0", &[0, 1, 2, 3])],
            bitstreams: names.map(|name| mk_bitstream(&name, 1_000)).collect(),
            heartbeat: Millis::from_secs(600),
            ..mk_state()
        };
        picker.with(|known, now| {
            known.set_node(&node, "uid", now);
            known.learn(&node, "uid", &state, Seen::Stream, now).unwrap();
        });
    }
    picker.set_synced();
    picker
}

/// The number of the function that a request is for: small numbers, whose functions have many replicas, most often.
fn drawn(request: usize) -> usize {
    let spread = request.wrapping_mul(2_654_435_761) % 1_000_003;
    (spread * spread / 1_000_003) * FUNCTIONS / 1_000_003
}

fn choose_in_memory(choices: usize) {
    let picker = picker();
    let names: Vec<FunctionName> = (0..FUNCTIONS).map(function).collect();
    // As many requests are in flight as half of the slots.
    let mut held = std::collections::VecDeque::new();
    let mut times = Vec::with_capacity(choices);
    for request in 0..choices {
        let name = names.get(drawn(request)).unwrap();
        let begun = Instant::now();
        let picked = picker.pick(Some(name), None).unwrap();
        times.push(begun.elapsed());
        held.push_back(picked);
        if held.len() > BOARDS * 2 {
            held.pop_front();
        }
    }
    times.sort_unstable();
    println!(
        "the choice in memory, {FUNCTIONS} functions with {REPLICAS} replicas on {BOARDS} boards of 4 slots, {choices} choices"
    );
    println!("{:>11} {:>11} {:>11} {:>11}   microseconds", "min", "p50", "p99", "max");
    let columns: String =
        [0, 50, 99, 100].map(|percent| format!("{:>11.1} ", micros(&times, percent))).concat();
    println!("{columns}");
}

/// A process with one of the services.
struct Server {
    kind: Kind,
    child: Child,
    channel: Channel,
    rounds: Vec<Round>,
}

/// What a round measured.
struct Round {
    /// Times until the endpoint was known, the shortest first.
    times: Vec<Duration>,
    /// Processor time of the server for a request.
    cpu: Duration,
}

impl Server {
    async fn start(kind: Kind) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(kind.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        let channel = Endpoint::from_shared(format!("http://{}", address.trim())).unwrap();
        let channel = channel.tcp_nodelay(true).connect().await.unwrap();
        Self { kind, child, channel, rounds: Vec::new() }
    }

    /// Asks at [`REQUESTS_PER_SECOND`] for `round`.
    async fn ask(&mut self, round: Duration) {
        let before = self.processor_time();
        let interval = Duration::from_secs(1) / REQUESTS_PER_SECOND;
        let requests = u32::try_from(round.as_nanos() / interval.as_nanos()).unwrap();
        let begun = tokio::time::Instant::now();
        let (sender, mut times) = mpsc::unbounded_channel();
        for request in 0..requests {
            tokio::time::sleep_until(begun + interval * request).await;
            let (client, sender) = (ExternalProcessorClient::new(self.channel.clone()), sender.clone());
            tokio::spawn(async move { sender.send(one(client, request).await).unwrap() });
        }
        drop(sender);
        let mut taken = Vec::new();
        while let Some(time) = times.recv().await {
            taken.push(time);
        }
        taken.sort_unstable();
        let cpu = (self.processor_time() - before) / requests;
        self.rounds.push(Round { times: taken, cpu });
    }

    /// A percentile of each round, in microseconds.
    fn percentiles(&self, percent: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| micros(&round.times, percent)).collect()
    }

    /// Processor time of a request in each round, in microseconds.
    fn cpu(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.cpu.as_secs_f64() * 1e6).collect()
    }

    /// Processor time of the process so far.
    fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name before may have spaces.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = [11, 12].map(|field: usize| fields[field].parse::<u64>().unwrap()).iter().sum();
        Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
    }

    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when its standard input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// One request. Returns the time until the endpoint is known.
async fn one(mut client: ExternalProcessorClient<Channel>, request: u32) -> Duration {
    let header = |key: &str, value: String| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: value.into_bytes().into(),
    };
    let mut headers = vec![
        header(":method", "POST".to_owned()),
        header(":path", format!("/function/function-{}", drawn(usize::try_from(request).unwrap()))),
        header(":authority", "functions.example".to_owned()),
    ];
    headers.extend((0..12).map(|i| header(&format!("x-header-{i}"), "a value of usual length".to_owned())));
    let headers = HeaderMap { headers }.encode_to_vec().into();
    let said = |request| ProcessingRequest { request: Some(request), ..ProcessingRequest::default() };
    let asked = said(Said::RequestHeaders(HttpHeaders { headers, end_of_stream: false }));
    let (messages, receiver) = mpsc::channel(2);
    messages.try_send(asked).unwrap();
    let begun = Instant::now();
    let mut answers = client.process(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!(matches!(answer.response, Some(Answer::RequestHeaders(_))), "{answer:?}");
    let ended = HttpHeaders { end_of_stream: true, ..HttpHeaders::default() };
    messages.send(said(Said::ResponseHeaders(ended))).await.unwrap();
    answers.message().await.unwrap().unwrap();
    took
}

fn over_grpc(round: Duration) {
    let cores = cores();
    // Children begin with all cores, and choose theirs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut servers = Vec::new();
        for kind in Kind::ALL {
            servers.push(Server::start(kind).await);
        }
        if let Some([_, asks]) = cores {
            stay_on(asks);
        }
        // The first requests make what later ones use again.
        for server in &mut servers {
            server.ask(round / 5).await;
            server.rounds.clear();
        }
        let memory = servers[0].memory_kib();
        for number in 0..ROUNDS {
            let mut order: Vec<&mut Server> = servers.iter_mut().collect();
            if number % 2 == 1 {
                order.reverse();
            }
            for server in order {
                server.ask(round).await;
            }
        }
        let placed = match cores {
            Some([serves, asks]) => format!("served on core {serves}, asked from core {asks}"),
            None => "served and asked on the only core".to_owned(),
        };
        println!();
        println!(
            "over gRPC at {REQUESTS_PER_SECOND} requests a second, {ROUNDS} rounds of {} requests, {placed}; a request is \
             two messages; medians of rounds",
            servers[0].rounds[0].times.len()
        );
        println!("{:<12} {:>9} {:>9} {:>22}", "", "p50 us", "p99 us", "processor us / request");
        for server in &servers {
            let [p50, p99] = [50, 99].map(|percent| median(&server.percentiles(percent)));
            println!("{:<12} {p50:>9.0} {p99:>9.0} {:>22.1}", server.kind.name(), median(&server.cpu()));
        }
        let [picker, two_threads, nothing] = servers.as_slice() else { unreachable!("one server of each kind") };
        for (server, of) in [(picker, nothing), (two_threads, nothing), (two_threads, picker)] {
            let [p50, p99] = [50, 99].map(|percent| ratio(&server.percentiles(percent), &of.percentiles(percent)));
            let (names, cpu) = (format!("{} / {}", server.kind.name(), of.kind.name()), ratio(&server.cpu(), &of.cpu()));
            println!("{names:<24} p50 {p50}, p99 {p99}, processor time {cpu}");
        }
        let verdict = |reached| if reached { "reached" } else { "MISSED" };
        println!("goal: at most 100 us of processor time a pick: {}", verdict(median(&picker.cpu()) <= 100.0));
        println!("goal: p99 at most 1 ms: {}", verdict(median(&picker.percentiles(99)) <= 1_000.0));
        println!("memory of the picker: {memory} KiB after warming up, {} KiB at the end", picker.memory_kib());
    });
}

/// The median ratio of rounds next to each other, with the least and the greatest.
fn ratio(figures: &[f64], of: &[f64]) -> String {
    let mut ratios: Vec<f64> = figures.iter().zip(of).map(|(figure, of)| figure / of).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let [least, greatest] = [ratios.first(), ratios.last()].map(|ratio| ratio.copied().unwrap_or(f64::NAN));
    format!("{:.2} ({least:.2} to {greatest:.2})", median(&ratios))
}

fn median(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_unstable_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 }
}

fn micros(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)].as_secs_f64() * 1e6
}

/// Serves until standard input ends, and prints the address.
fn serve(kind: Kind) {
    if let Some([serves, _]) = cores() {
        stay_on(serves);
    }
    let mut builder = match kind {
        Kind::Picker | Kind::Nothing => tokio::runtime::Builder::new_current_thread(),
        Kind::TwoThreads => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let end = tokio::task::spawn_blocking(|| drop(std::io::stdin().read(&mut [0])));
        let served = async {
            match kind {
                Kind::Picker | Kind::TwoThreads => {
                    let picker = picker();
                    let routing = Routing { fixed: None, namespace: "default".into(), domain: None };
                    let service = Service::new(Arc::clone(&picker), routing, MAX_STREAMS);
                    let port = Port { listener, tls: None, max_message_bytes: 1 << 20 };
                    port.serve(picker, service, std::future::pending()).await.unwrap();
                }
                Kind::Nothing => {
                    let service = ExternalProcessorServer::new(Nothing);
                    let connections = TcpListenerStream::new(listener);
                    let server = tonic::transport::Server::builder().tcp_nodelay(true).add_service(service);
                    server.serve_with_incoming(connections).await.unwrap();
                }
            }
        };
        tokio::select! {
            () = served => {}
            _ = end => {}
        }
    });
    std::process::exit(0);
}

/// Tells every request the same endpoint.
struct Nothing;

#[tonic::async_trait]
impl ExternalProcessor for Nothing {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let answers = request.into_inner().map(|message| {
            let is_request = matches!(message?.request, Some(Said::RequestHeaders(_)));
            let response = if is_request { same_endpoint() } else { HeadersResponse::default() };
            let response =
                if is_request { Answer::RequestHeaders(response) } else { Answer::ResponseHeaders(response) };
            Ok(ProcessingResponse { response: Some(response), ..ProcessingResponse::default() })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

fn same_endpoint() -> HeadersResponse {
    let header = HeaderValue {
        key: DESTINATION.to_owned(),
        value: String::new(),
        raw_value: b"10.0.0.1:8080,10.0.0.2:8080,10.0.0.3:8080".to_vec().into(),
    };
    let option = HeaderValueOption { header: Some(header), append_action: 2 };
    let mutation = HeaderMutation { set_headers: vec![option], ..HeaderMutation::default() };
    let common = CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() };
    HeadersResponse { response: Some(common) }
}

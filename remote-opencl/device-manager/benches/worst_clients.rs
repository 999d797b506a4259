//! `make worst-clients`: how much of a manager's memory hostile clients take, and how much of a neighbour's
//! latency.
//!
//! The neighbour runs a null kernel again and again: first alone, then beside a tenant, then beside a client
//! without a token. Each of these attacks in all ways at once that make a manager hold memory. The output is
//! the manager's memory beside its limit, and the median and 99th percentile of the neighbour's times. The
//! benchmark fails if the memory exceeds the limit; it does not check the times. The attacker's own process has
//! the lowest priority, so that the times show the manager's work for it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement"
)]
#![allow(dead_code, unused_imports, reason = "a part of what the tests of the service share")]

#[path = "../tests/it/harness.rs"]
mod harness;

use bytes::Bytes;
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;
use harness::wire::{encoded, hello_with, padded, try_raw_bytes};
use harness::{Client, Manager, Ready};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

const CLIENT_MEMORY: &str = "256MiB";
const CLIENT_MEMORY_BYTES: u64 = 256 << 20;
/// Bytes of the manager itself, its threads and its runtime, besides those that clients make it hold.
const BESIDE_BYTES: u64 = 192 << 20;

const NEIGHBOUR: &str = "neighbour-0123456789abcdef";
const TENANT: &str = "tenant-0123456789abcdef";

/// Makes this program the attacker; the value is `tenant` or `unproven`, and the socket's path.
const ATTACK: &str = "FPGA_WORST_CLIENTS_ATTACK";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Ok(attack) = std::env::var(ATTACK) {
        let (who, socket) = attack.split_once(' ').unwrap();
        return runtime.block_on(attack_as(if who == "tenant" { TENANT } else { "" }, socket.into()));
    }
    // Measures only under `cargo bench`, since it takes minutes.
    if std::env::args().any(|argument| argument == "--bench") {
        runtime.block_on(measure());
    }
}

async fn measure() {
    let seconds = std::env::var("WORST_CLIENTS_SECONDS").map_or(60, |seconds| seconds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("neighbour"), NEIGHBOUR).unwrap();
    std::fs::write(folder.path().join("tenant"), TENANT).unwrap();
    let tokens = folder.path().to_str().unwrap();
    for who in ["tenant", "unproven"] {
        // A manager for each, since the allocator keeps memory after the first attack.
        let manager = Manager::start(&["--client-memory", CLIENT_MEMORY, "--tokens", tokens]);
        let mut neighbour = Client::with_token(manager.channel().await, NEIGHBOUR).await;
        let ready = neighbour.ready("kernel void nothing(global int *a) { }", "nothing", 4).await;
        run_for(Duration::from_secs(2), &manager, &mut neighbour, &ready).await;
        let (before, alone) = run_for(Duration::from_secs(10), &manager, &mut neighbour, &ready).await;
        let attacker = Attacker::start(who, &manager);
        let time = Duration::from_secs(seconds);
        let (most, beside) = run_for(time, &manager, &mut neighbour, &ready).await;
        drop(attacker);
        let grown = most.saturating_sub(before);
        println!(
            "the worst {who}: {} MiB, then {} MiB; {CLIENT_MEMORY} may be held",
            before >> 20,
            most >> 20
        );
        println!("  null kernel alone  p50 {:>8.1} µs, p99 {:>8.1} µs", alone.0, alone.1);
        println!(
            "  null kernel beside p50 {:>8.1} µs, p99 {:>8.1} µs, {:.2}x",
            beside.0,
            beside.1,
            beside.1 / alone.1
        );
        assert!(grown <= CLIENT_MEMORY_BYTES + BESIDE_BYTES, "the manager holds more than it may");
    }
}

struct Attacker(Child);

impl Attacker {
    fn start(who: &str, manager: &Manager) -> Self {
        let attack = format!("{who} {}", manager.socket().display());
        // The lowest priority: what a client's own process takes of the processors is for its cgroup to bound. What is
        // measured is the manager's work for the client.
        let mut program = Command::new("nice");
        program.args(["-n", "19"]).arg(std::env::current_exe().unwrap());
        Self(program.env(ATTACK, attack).spawn().unwrap())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The most memory of the manager during `time`, and the median and 99th percentile of the neighbour's times
/// in µs.
async fn run_for(
    time: Duration,
    manager: &Manager,
    neighbour: &mut Client,
    ready: &Ready,
) -> (u64, (f64, f64)) {
    let since = Instant::now();
    let (mut most, mut times) = (0, Vec::new());
    while since.elapsed() < time {
        let args = vec![Value::Buffer(ready.buffer)];
        let launch = neighbour.launch(ready.queue, ready.kernel, args, 1);
        let event = launch.event;
        let start = Instant::now();
        assert_eq!(neighbour.run(launch).await, 0);
        times.push(start.elapsed());
        let release = v1::Release { objects: Vec::new(), events: vec![event] };
        neighbour.cast(Method::Release(release)).await;
        if times.len().is_multiple_of(32) {
            most = most.max(resident(manager));
        }
    }
    times.sort();
    let at = |part: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (times.len() as f64 * part) as usize;
        times[index.min(times.len() - 1)].as_secs_f64() * 1e6
    };
    (most, (at(0.5), at(0.99)))
}

fn resident(manager: &Manager) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", manager.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// A way to make a manager hold memory.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Chunks of one byte in messages of 4 MiB.
    PaddedChunks,
    /// Commands of two bytes whose decoded form takes hundreds.
    EmptyCommands,
    /// Uploads that never end.
    OpenUploads,
    /// Reads whose data the client does not take.
    UnreadReads,
    /// Calls whose replies the client does not take.
    UnreadReplies,
    /// Wait lists, some of them too long, behind a user event that is never set.
    WaitingCommands,
    /// Half of a message, and nothing after it.
    HalfMessages,
}

/// All ways at once, each again and again, until the process is killed.
async fn attack_as(token: &'static str, socket: PathBuf) {
    use Way::{
        EmptyCommands, HalfMessages, OpenUploads, PaddedChunks, UnreadReads, UnreadReplies, WaitingCommands,
    };
    let ways =
        [PaddedChunks, EmptyCommands, OpenUploads, UnreadReads, UnreadReplies, WaitingCommands, HalfMessages];
    let each = ways.into_iter().cycle().take(2 * ways.len()).map(|way| {
        let socket = socket.clone();
        async move {
            loop {
                // The manager ends or refuses the session; the next one follows.
                let _ = tokio::time::timeout(Duration::from_secs(20), attack(way, token, &socket)).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    futures::future::join_all(each).await;
}

async fn channel(socket: &std::path::Path) -> Option<Channel> {
    let socket = socket.to_owned();
    let connect = tower::service_fn(move |_: tonic::transport::Uri| {
        let socket = socket.clone();
        async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://manager").connect_with_connector(connect).await.ok()
}

/// One session, until it ends. It reads only what its way needs.
async fn attack(way: Way, token: &str, socket: &std::path::Path) -> Option<()> {
    let (to, mut from) = try_raw_bytes(channel(socket).await?).await.ok()?;
    // Without a token the first message is the attack itself.
    if !token.is_empty() {
        to.send(hello_with(PROTOCOL_VERSION, token).encode_to_vec().into()).await.ok()?;
        from.message().await.ok()??;
    }
    let say = async |kind| to.send(encoded(kind)).await.ok();
    let call = async |id, method| {
        to.send(encoded(Kind::Call(v1::Call { id, method: Some(method), trace: None }))).await.ok()
    };
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    let data = Bytes::from(vec![7; 1 << 20]);
    let (context, queue, buffer, event) = (next(), next(), next(), next());
    if !token.is_empty() {
        call(0, Method::CreateContext(v1::CreateContext { context, devices: vec![1] })).await?;
        call(0, Method::CreateQueue(v1::CreateQueue { queue, context, device: 1, properties: 0 })).await?;
        let create =
            v1::CreateBuffer { buffer, context, flags: 1, size: 4 << 20, initial: None, storage: None };
        call(0, Method::CreateBuffer(create)).await?;
        call(0, Method::CreateUserEvent(v1::CreateUserEvent { event, context })).await?;
    }
    loop {
        let id = next();
        let transfer = 1 << 63 | id;
        match way {
            Way::PaddedChunks => {
                let data = data.slice(..1);
                let chunk = v1::Chunk { transfer, length: 2, offset: 0, data };
                to.send(padded(Kind::Chunk(chunk))).await.ok()?;
            }
            Way::EmptyCommands => {
                say(Kind::Flush(v1::Flush { commands: vec![v1::Command::default(); 1 << 20] })).await?;
            }
            Way::OpenUploads => {
                let chunk = v1::Chunk { transfer, length: 2 << 20, offset: 0, data: data.clone() };
                say(Kind::Chunk(chunk)).await?;
            }
            Way::UnreadReads => {
                let read =
                    v1::ReadBuffer { buffer, offset: 0, size: 4 << 20, into: None, memory_at_start: false };
                say(flush(v1::Command {
                    event: id,
                    queue,
                    operation: Some(Operation::ReadBuffer(read)),
                    ..v1::Command::default()
                }))
                .await?;
            }
            Way::UnreadReplies => {
                call(id, Method::GetImageFormats(v1::GetImageFormats { context, flags: 1, r#type: 0x10F1 }))
                    .await?;
            }
            Way::WaitingCommands => {
                let wait = vec![event; if id % 2 == 0 { 100 } else { 5000 }];
                let operation = Some(Operation::Marker(v1::Marker {}));
                say(flush(v1::Command { event: id, queue, operation, wait, ..v1::Command::default() }))
                    .await?;
            }
            Way::HalfMessages => {
                // A message that the manager must not buffer before the handshake.
                to.send(padded(Kind::Hello(v1::Hello::default()))).await.ok()?;
                std::future::pending::<()>().await;
            }
        }
    }
}

fn flush(command: v1::Command) -> Kind {
    Kind::Flush(v1::Flush { commands: vec![command] })
}

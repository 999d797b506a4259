//! Clients that try to exceed the manager's memory in every way: small data in large messages, small messages
//! that decode to much, uploads that stay open, reads whose results are not taken, rings that are not read.

use super::exhaustion::held;
use crate::harness::{Client, Manager, Ready, encoded, hello, next, padded, raw_bytes};
use crate::service::INCREASE;
use crate::service::command_ring::Ring;
use crate::service::scalar;
use bytes::Bytes;
use fpga_protocol::limits::{MAX_MESSAGE_BYTES, PROTOCOL_VERSION};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::until_async;
use prost::Message as _;
use std::time::Duration;
use tonic::Code;

/// Memory for all clients. A tenant has half of it, of which a third is for passing bytes.
const MEMORY: &str = "192MiB";
const OF_TENANT: u64 = 32 << 20;
/// Memory for other growth: threads, the allocator, the runtime.
const BESIDE: u64 = 48 << 20;

const CL_OUT_OF_RESOURCES: i32 = -5;

/// A manager in as little memory as a container may have.
fn small() -> Manager {
    Manager::start(&["--client-memory", MEMORY])
}

/// Number of heaps of single threads in a process: glibc reserves 64 MiB of addresses for each and uses a
/// part.
fn heaps_of_threads(pid: u32) -> usize {
    const HEAP_BYTES: u64 = 64 << 20;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mappings: Vec<_> = maps
        .lines()
        .map(|line| {
            let mut fields = line.split_whitespace();
            let (from, to) = fields.next().unwrap().split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(from), number(to), fields.next().unwrap().to_owned())
        })
        .collect();
    let is_heap = |pair: &&[(u64, u64, String)]| {
        let (used, rest) = (&pair[0], &pair[1]);
        let follows = used.1 == rest.0 && used.2 == "rw-p" && rest.2 == "---p";
        used.0 % HEAP_BYTES == 0 && follows && rest.1 - used.0 == HEAP_BYTES
    };
    mappings.windows(2).filter(is_heap).count()
}

#[tokio::test]
async fn all_threads_of_a_manager_have_one_heap_so_that_what_it_keeps_of_freed_memory_does_not_add_up() {
    let manager = Manager::start(&[]);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(&manager).await;
        let Ready { queue, buffer, .. } = client.ready(INCREASE, "increase", 1 << 20).await;
        let write = client.write(queue, buffer, vec![1; 1 << 20]).await;
        assert_eq!(client.run(write).await, 0);
        clients.push(client);
    }
    assert_eq!(heaps_of_threads(manager.id()), 0);
    let metrics = manager.metrics_text();
    assert!(metrics.contains("fpga_device_manager_heap_kept_bytes "), "{metrics}");
}

/// The greatest growth of the manager's memory while `attack` runs, in bytes.
async fn growth(manager: &Manager, attack: impl Future<Output = ()>) -> u64 {
    let before = held(manager);
    let mut most = before;
    let mut attack = std::pin::pin!(attack);
    loop {
        tokio::select! {
            () = attack.as_mut() => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => most = most.max(held(manager)),
        }
    }
    most.max(held(manager)) - before
}

fn empty_commands(count: usize) -> Kind {
    Kind::Flush(v1::Flush { commands: vec![v1::Command::default(); count] })
}

fn call(id: u64, method: Method) -> Bytes {
    encoded(Kind::Call(v1::Call { id, method: Some(method), trace: None }))
}

#[tokio::test]
async fn small_chunks_in_large_messages_take_the_memory_of_the_chunks() {
    const CHUNKS: u64 = 64;
    let manager = small();
    let mut witness = Client::connect(&manager).await;
    let (to, mut from) = raw_bytes(manager.channel().await).await;
    to.send(hello(PROTOCOL_VERSION).encode_to_vec().into()).await.unwrap();
    next(&mut from).await.unwrap();
    let attack = async {
        for transfer in 1..=CHUNKS {
            let data = Bytes::from_static(&[7]);
            let chunk = v1::Chunk { transfer: 1 << 63 | transfer, length: 2, offset: 0, data };
            to.send(padded(Kind::Chunk(chunk))).await.unwrap();
        }
        // The manager answers only after it has taken all messages.
        to.send(call(1, Method::Release(v1::Release::default()))).await.unwrap();
        next(&mut from).await.unwrap();
    };
    let grown = growth(&manager, attack).await;
    let sent = CHUNKS * MAX_MESSAGE_BYTES as u64;
    assert!(grown < BESIDE, "{grown} bytes for {CHUNKS} bytes of data in messages of {sent}");
    witness.context().await;
}

#[tokio::test]
async fn nothing_but_a_short_hello_is_decoded_before_it_is_known_whose_it_is() {
    const COMMANDS: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("one"), "0123456789abcdef0123456789abcdef").unwrap();
    let manager = Manager::start(&["--client-memory", MEMORY, "--tokens", folder.path().to_str().unwrap()]);
    let message = encoded(empty_commands(COMMANDS));
    assert!(message.len() < MAX_MESSAGE_BYTES);
    let attack = async {
        for _ in 0..8 {
            let (to, mut from) = raw_bytes(manager.channel().await).await;
            to.send(message.clone()).await.unwrap();
            let status = next(&mut from).await.unwrap_err();
            assert_eq!(status.code(), Code::OutOfRange, "{status}");
        }
    };
    let grown = growth(&manager, attack).await;
    assert!(grown < BESIDE, "{grown} bytes for clients that have shown no token");
}

#[tokio::test]
async fn a_message_that_decodes_to_far_more_than_it_has_ends_its_session_before_it_is_decoded() {
    let manager = small();
    let mut witness = Client::connect(&manager).await;
    let attack = async {
        for _ in 0..8 {
            let client = Client::connect(&manager).await;
            client.send(empty_commands(1 << 20)).await;
            let status = client.end().await.unwrap();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
    };
    let grown = growth(&manager, attack).await;
    assert!(grown < BESIDE, "{grown} bytes for messages of 2 MiB");
    witness.context().await;
}

#[tokio::test]
async fn more_reads_than_there_is_memory_for_wait_and_all_of_them_come() {
    const READS: usize = 40;
    const SIZE: u64 = 4 << 20;
    let manager = small();
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, SIZE).await;
    let write = client.write(queue, buffer, vec![7; usize::try_from(SIZE).unwrap()]).await;
    assert_eq!(client.run(write).await, 0);
    let events: Vec<_> = (0..READS).map(|_| client.read(queue, buffer, SIZE)).collect();
    let numbers: Vec<_> = events.iter().map(|read| read.event).collect();
    let attack = async {
        for read in events {
            client.flush(vec![read]).await;
        }
        for event in numbers {
            let (completion, data) = client.completion(event).await;
            assert_eq!((completion.status, data.len() as u64), (0, SIZE));
            assert!(data.iter().all(|byte| *byte == 7));
        }
    };
    let grown = growth(&manager, attack).await;
    assert!(grown < OF_TENANT + BESIDE, "{grown} bytes more");
}

#[tokio::test]
async fn a_read_or_write_of_more_than_can_ever_be_held_fails_alone() {
    const SIZE: usize = 48 << 20;
    let manager = small();
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, SIZE as u64).await;
    let read = client.read(queue, buffer, SIZE as u64);
    assert_eq!(client.run(read).await, CL_OUT_OF_RESOURCES);
    let grown = growth(&manager, async {
        let write = client.write(queue, buffer, vec![7; SIZE]).await;
        assert_eq!(client.run(write).await, CL_OUT_OF_RESOURCES);
    })
    .await;
    assert!(grown < BESIDE, "{grown} bytes for a transfer that is dropped");
    let read = client.read(queue, buffer, 4);
    assert_eq!(client.run(read).await, 0, "the session goes on");
}

#[tokio::test]
async fn uploads_that_stay_open_are_bounded_and_leave_other_sessions_what_is_theirs() {
    const CHUNK: usize = 1 << 20;
    // More in all than the bound below.
    const UPLOADS: u64 = 160;
    let manager = small();
    let mut witness = Client::connect(&manager).await;
    let Ready { queue, kernel, buffer } = witness.ready(INCREASE, "increase", 4).await;
    let greedy = Client::connect(&manager).await;
    let data = Bytes::from(vec![7; CHUNK]);
    let attack = async {
        for transfer in 1..=UPLOADS {
            let length = 2 * CHUNK as u64;
            let chunk = v1::Chunk { transfer: 1 << 63 | transfer, length, offset: 0, data: data.clone() };
            greedy.send(Kind::Chunk(chunk)).await;
        }
        // A command of the same tenant, while the greedy session has all shared bytes.
        let args = vec![Value::Buffer(buffer), scalar(&1_i32.to_le_bytes())];
        let launch = witness.launch(queue, kernel, args, 1);
        assert_eq!(witness.run(launch).await, 0);
    };
    let grown = growth(&manager, attack).await;
    assert!(grown < OF_TENANT + BESIDE, "{grown} bytes for uploads that nothing refers to");
}

#[tokio::test]
async fn a_client_that_reads_nothing_of_its_ring_loses_its_session() {
    const READS: usize = 24;
    const SIZE: u64 = 4 << 20;
    let manager = small();
    let mut witness = Client::connect(&manager).await;
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, SIZE).await;
    let mut ring = Ring::open(&manager, &mut client).await;
    let before = held(&manager);
    for _ in 0..READS {
        let read = client.command(
            queue,
            Operation::ReadBuffer(v1::ReadBuffer {
                buffer,
                offset: 0,
                size: SIZE,
                into: None,
                memory_at_start: false,
            }),
        );
        ring.say(Kind::Flush(v1::Flush { commands: vec![read] }));
    }
    let mut most = 0;
    until_async("the end of its session", async || {
        most = most.max(held(&manager).saturating_sub(before));
        manager.sessions() == 1
    })
    .await;
    assert!(most < OF_TENANT + BESIDE, "{most} bytes for a ring that is not read");
    witness.context().await;
}

#[tokio::test]
async fn reads_that_take_memory_when_they_start_hold_no_more_than_their_tenant_may() {
    const READS: usize = 24;
    const SIZE: u64 = 4 << 20;
    let manager = small();
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, SIZE).await;
    let before = held(&manager);
    let read = v1::ReadBuffer { buffer, offset: 0, size: SIZE, into: None, memory_at_start: true };
    let reads: Vec<_> = (0..READS).map(|_| client.command(queue, Operation::ReadBuffer(read))).collect();
    let events: Vec<u64> = reads.iter().map(|read| read.event).collect();
    client.flush(reads).await;
    let mut refused = 0;
    for event in events {
        assert!(held(&manager).saturating_sub(before) < OF_TENANT + BESIDE);
        let (completion, data) = client.completion(event).await;
        match completion.status {
            0 => assert_eq!(data.len() as u64, SIZE),
            // The first that is refused, or one behind it in the queue.
            status => refused += usize::from(status < 0),
        }
    }
    assert!(0 < refused && refused < READS, "{refused}");
}

#[tokio::test]
async fn a_tenant_that_holds_all_that_it_may_slows_no_other_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
    std::fs::write(folder.path().join("one"), one).unwrap();
    std::fs::write(folder.path().join("two"), two).unwrap();
    let manager = Manager::start(&["--client-memory", MEMORY, "--tokens", folder.path().to_str().unwrap()]);
    let greedy = Client::with_token(manager.channel().await, one).await;
    let data = Bytes::from(vec![7; 1 << 20]);
    for transfer in 1..=32 {
        let chunk =
            v1::Chunk { transfer: 1 << 63 | transfer, length: 3 << 20, offset: 0, data: data.clone() };
        greedy.send(Kind::Chunk(chunk)).await;
    }
    let mut other = Client::with_token(manager.channel().await, two).await;
    let context = other.context().await;
    let queue = other.queue(context, 0).await;
    let buffer = other.buffer(context, 16 << 20).await;
    let write = other.write(queue, buffer, vec![7; 16 << 20]).await;
    assert_eq!(other.run(write).await, 0);
    let read = other.read(queue, buffer, 16 << 20);
    let event = read.event;
    other.flush(vec![read]).await;
    assert_eq!(other.completion(event).await.1.len(), 16 << 20);
}

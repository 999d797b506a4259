//! The service over a real OpenCL runtime, used without a client library.

mod access;
mod board;
mod command_ring;
mod crowd;
mod drain;
mod events;
mod full;
mod gate;
mod half_open;
mod health;
mod helper_thread;
mod hostile;
mod images;
mod isolation;
mod marker_elision;
mod model;
mod newer;
mod pool;
mod random;
mod rects;
mod revocation;
mod shared_memory;
mod sharing;
mod tenants;
mod timing;
mod traces;
mod unwatched;
mod whole_board;

use crate::harness::{self, Client, Manager, Ready, after};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;
use std::time::{Duration, Instant};

const ADD: &str = "kernel void add(global const int *a, global const int *b, global int *c) {
    size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}";

/// Adds `by` to each element.
const INCREASE: &str = "kernel void increase(global int *a, int by) { a[get_global_id(0)] += by; }";

/// Keeps one work-item busy for `rounds`.
const BUSY: &str = "kernel void busy(global uint *a, ulong rounds) {
    uint x = a[0];
    for (ulong i = 0; i < rounds; i++) { x = x * 1664525u + 1013904223u; a[1] = x; }
    a[0] = x | 1u;
}";

const OUT_OF_ORDER: u64 = 1;
const PROFILING: u64 = 2;

fn ints(numbers: impl IntoIterator<Item = i32>) -> Vec<u8> {
    numbers.into_iter().flat_map(i32::to_le_bytes).collect()
}

fn scalar(bytes: &[u8]) -> Value {
    Value::Scalar(Bytes::copy_from_slice(bytes))
}

#[tokio::test]
async fn a_welcome_tells_the_vendors_names_verbatim() {
    let manager = Manager::start(&[]);
    let client = Client::connect(&manager).await;
    let platform = &client.welcome.platforms[0];
    let text = |info: &[v1::Info], param| {
        let info = info.iter().find(|info| info.param == param).unwrap();
        String::from_utf8(info.value.to_vec()).unwrap()
    };
    assert!(!text(&platform.info, 0x0902).is_empty(), "CL_PLATFORM_NAME");
    assert!(text(&platform.devices[0].info, 0x102F).starts_with("OpenCL "), "CL_DEVICE_VERSION");
    assert!(platform.devices[0].info.iter().all(|info| info.param != 0x1031), "no handles");
}

#[tokio::test]
async fn a_vector_sum_from_source_is_right_and_measured() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, PROFILING).await;
    let program = client.source(context, ADD).await;
    let (status, build) = client.build(program).await;
    assert_eq!(status, 0, "{:?}", build.devices);
    let info = &build.kernels[0];
    assert_eq!((info.name.as_str(), info.num_args, info.args.len()), ("add", 3, 3));
    assert_eq!((info.args[2].name.as_str(), info.args[2].type_name.as_str()), ("c", "int*"));
    let kernel = client.kernel(program, "add").await;
    let [a, b, c] = [
        client.buffer(context, 4000).await,
        client.buffer(context, 4000).await,
        client.buffer(context, 4000).await,
    ];
    let commands = vec![
        client.write(queue, a, ints(0..1000)).await,
        client.write(queue, b, ints(1000..2000)).await,
        client.launch(queue, kernel, vec![Value::Buffer(a), Value::Buffer(b), Value::Buffer(c)], 1000),
        client.read(queue, c, 4000),
    ];
    let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
    client.flush(commands).await;
    let (read, data) = client.completion(events[3]).await;
    assert_eq!((read.status, data), (0, ints((0..1000).map(|i| 2 * i + 1000))));
    let (launch, _) = client.completion(events[2]).await;
    assert!(launch.queued_ns <= launch.submitted_ns && launch.submitted_ns <= launch.started_ns);
    assert!(launch.started_ns < launch.ended_ns && launch.ended_ns <= read.ended_ns);
    assert!(client.welcome.manager_ns < launch.queued_ns);

    let hidden = client.queue(context, 0).await;
    let read = client.read(hidden, c, 4000);
    let event = read.event;
    client.flush(vec![read]).await;
    let (read, _) = client.completion(event).await;
    assert_eq!((read.queued_ns, read.submitted_ns, read.started_ns, read.ended_ns), (0, 0, 0, 0));
}

#[tokio::test]
async fn a_binary_is_sent_once_and_then_known_to_all_sessions() {
    let manager = Manager::start(&["--slots", "1", "--reconfiguration-time", "20ms"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let source = client.source(context, INCREASE).await;
    assert_eq!(client.build(source).await.0, 0);
    let binary = client.binary(source).await;
    for expected_missing in [1, 0] {
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        // Making the program loads the board.
        let since = Instant::now();
        let (program, missing) = client.program_from(context, &binary).await;
        assert_eq!(missing, expected_missing);
        let kernel = client.kernel(program, "increase").await;
        let queue = client.queue(context, 0).await;
        let buffer = client.buffer(context, 40).await;
        let commands = vec![
            client.write(queue, buffer, ints(0..10)).await,
            client.launch(queue, kernel, vec![Value::Buffer(buffer), scalar(&5_i32.to_le_bytes())], 10),
            client.read(queue, buffer, 40),
        ];
        let last = commands[2].event;
        client.flush(commands).await;
        let (read, data) = client.completion(last).await;
        assert_eq!((read.status, data), (0, ints(5..15)));
        if expected_missing == 1 {
            assert!(since.elapsed() >= Duration::from_millis(20), "loading takes its modelled time");
        }
    }
}

#[tokio::test]
async fn a_program_from_source_is_loaded_like_a_bitstream_where_that_is_asked_for() {
    let manager =
        Manager::start(&["--source-as-bitstream", "--slots", "1", "--reconfiguration-time", "50ms"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 4).await;
    for source in [INCREASE, &INCREASE.replace("+=", "-=")] {
        let program = client.source(context, source).await;
        assert_eq!(client.build(program).await.0, 0);
        let kernel = client.kernel(program, "increase").await;
        let one = scalar(&1_i32.to_le_bytes());
        let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer), one], 1);
        let event = launch.event;
        let since = Instant::now();
        client.flush(vec![launch]).await;
        assert_eq!(client.status(event).await, 0);
        assert!(since.elapsed() >= Duration::from_millis(50), "loading takes its modelled time");
    }
}

#[tokio::test]
async fn much_data_goes_both_ways_in_chunks() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, OUT_OF_ORDER).await;
    let size = 5 * 1024 * 1024 + 12;
    let buffer = client.buffer(context, size).await;
    let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
    let write = client.write(queue, buffer, bytes.clone()).await;
    let read = client.read(queue, buffer, size);
    let (first, second) = (write.event, read.event);
    client.flush(vec![write, after(read, &[first])]).await;
    let (completion, data) = client.completion(second).await;
    assert_eq!(completion.status, 0);
    assert!(data == bytes, "the bytes come back");
}

#[tokio::test]
async fn a_session_over_tcp_is_the_same() {
    let manager = Manager::start(&["--listen", "tcp://127.0.0.1:0", "--insecure-tcp"]);
    let mut client = Client::over(manager.tcp_channel().await).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let size = 3 << 20;
    let buffer = client.buffer(context, size).await;
    let write = client.write(queue, buffer, vec![9; 3 << 20]).await;
    let read = client.read(queue, buffer, size);
    let event = read.event;
    client.flush(vec![write, read]).await;
    assert!(client.completion(event).await.1 == vec![9; 3 << 20]);
}

#[tokio::test]
async fn a_buffer_holds_its_initial_bytes_and_may_be_released_before_they_are_there() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    for length in [64_usize, 3 << 20] {
        let bytes = vec![7; length];
        let (buffer, short, unused) = (client.id(), client.id(), client.id());
        for (buffer, size) in [(buffer, length as u64), (unused, length as u64), (short, length as u64 + 1)] {
            let initial = Some(client.data(bytes.clone()).await);
            let create = v1::CreateBuffer { buffer, context, flags: 1, size, initial, storage: None };
            let expected = if buffer == short { -30 } else { 0 };
            assert_eq!(client.call(Method::CreateBuffer(create)).await.status, expected);
            if buffer == unused {
                client.cast(Method::Release(v1::Release { objects: vec![unused], events: vec![] })).await;
            }
        }
        let read = client.read(queue, buffer, length as u64);
        let event = read.event;
        client.flush(vec![read]).await;
        assert!(client.completion(event).await.1 == bytes);
    }
}

#[tokio::test]
async fn copies_fills_regions_markers_and_barriers_do_what_they_say() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, OUT_OF_ORDER).await;
    let (a, b) = (client.buffer(context, 4096).await, client.buffer(context, 4096).await);
    let region = client.id();
    let create = v1::CreateSubBuffer { buffer: region, parent: b, flags: 0, origin: 1024, size: 1024 };
    assert_eq!(client.call(Method::CreateSubBuffer(create)).await.status, 0);
    let fill = v1::FillBuffer { buffer: a, pattern: Bytes::from_static(b"abcd"), offset: 0, size: 4096 };
    let copy = v1::CopyBuffer { source: a, target: region, source_offset: 8, target_offset: 4, size: 1000 };
    let commands = vec![
        client.command(queue, Operation::FillBuffer(fill)),
        client.command(queue, Operation::Barrier(v1::Barrier {})),
        client.command(queue, Operation::CopyBuffer(copy)),
        client.command(queue, Operation::Marker(v1::Marker {})),
    ];
    let marker = commands[3].event;
    let read = client.read(queue, b, 4096);
    let last = read.event;
    client.flush(commands).await;
    client.flush(vec![after(read, &[marker])]).await;
    let (_, data) = client.completion(last).await;
    let mut expected = vec![0; 4096];
    for (at, byte) in expected[1028..2028].iter_mut().enumerate() {
        *byte = b"abcd"[at % 4];
    }
    assert!(data == expected);
    assert_eq!(client.status(marker).await, 0);
}

#[tokio::test]
async fn what_a_command_needs_outlives_its_release() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 4).await;
    let user = client.user_event(context).await;
    let write = client.write(queue, buffer, ints([3])).await;
    let read = client.read(queue, buffer, 4);
    let (first, last) = (write.event, read.event);
    client.flush(vec![after(write, &[user]), read]).await;
    client
        .cast(Method::Release(v1::Release {
            objects: vec![buffer, queue, context],
            events: vec![first, last],
        }))
        .await;
    assert_eq!(client.set(user, 0).await, 0);
    assert_eq!(client.completion(last).await.1, ints([3]));
}

#[tokio::test]
async fn a_failed_build_tells_why_and_the_session_goes_on() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let program = client.source(context, "kernel void broken( { }").await;
    let (status, build) = client.build(program).await;
    assert_eq!(status, -11);
    assert!(build.devices[0].log.contains("error"), "{:?}", build.devices[0].log);
    let program = client.source(context, ADD).await;
    assert_eq!(client.build(program).await.0, 0);
}

#[tokio::test]
async fn a_client_that_goes_during_its_task_leaves_the_slot_to_others() {
    let manager = Manager::start(&["--slots", "1"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let program = client.source(context, BUSY).await;
    assert_eq!(client.build(program).await.0, 0);
    let kernel = client.kernel(program, "busy").await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 8).await;
    let rounds = scalar(&200_000_000_u64.to_le_bytes());
    let user = client.user_event(context).await;
    let mark = client.write(queue, buffer, vec![1; 8]).await;
    let busy = client.launch(queue, kernel, vec![Value::Buffer(buffer), rounds], 1);
    let never = client.read(queue, buffer, 8);
    let first = mark.event;
    client.flush(vec![mark, busy, after(never, &[user])]).await;
    assert_eq!(client.status(first).await, 0);
    drop(client);
    // Its last task runs to its end, and then nothing of the session is left.

    let mut other = Client::connect(&manager).await;
    let context = other.context().await;
    let program = other.source(context, INCREASE).await;
    assert_eq!(other.build(program).await.0, 0);
    let kernel = other.kernel(program, "increase").await;
    let queue = other.queue(context, 0).await;
    let buffer = other.buffer(context, 4).await;
    let launch = other.launch(queue, kernel, vec![Value::Buffer(buffer), scalar(&1_i32.to_le_bytes())], 1);
    let event = launch.event;
    other.flush(vec![launch]).await;
    assert_eq!(other.status(event).await, 0);
    drop(other);
    manager.has_no_session().await;
}

#[tokio::test]
async fn a_manager_that_is_told_to_stop_tells_its_clients_and_ends() {
    let mut manager = Manager::start(&["--drain-timeout", "200ms"]);
    let mut client = Client::connect(&manager).await;
    client.context().await;
    let stopped = tokio::task::spawn_blocking(move || manager.terminate());
    let status = client.end().await.unwrap();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    assert!(stopped.await.unwrap().success());
}

#[tokio::test]
async fn a_task_that_runs_when_the_manager_is_told_to_stop_ends_first_and_its_client_hears_of_it() {
    for isolate in ["protocol", "process"] {
        let mut manager = Manager::start(&["--slots", "1", "--isolate", isolate]);
        let mut client = Client::connect(&manager).await;
        let Ready { queue, kernel, buffer } = client.ready(BUSY, "busy", 8).await;
        let mark = client.write(queue, buffer, vec![1; 8]).await;
        let rounds = scalar(&(1_u64 << 28).to_le_bytes());
        let busy = client.launch(queue, kernel, vec![Value::Buffer(buffer), rounds], 1);
        let read = client.read(queue, buffer, 8);
        let (started, ended, told) = (mark.event, busy.event, read.event);
        client.flush(vec![mark, busy, read]).await;
        assert_eq!(client.status(started).await, 0);
        assert!(!client.has_completed(ended), "it has to run when the signal comes");
        let stopped = tokio::task::spawn_blocking(move || manager.terminate());
        assert_eq!(client.status(ended).await, 0, "{isolate}");
        let (completion, data) = client.completion(told).await;
        assert_eq!((completion.status, data.len()), (0, 8), "{isolate}");
        assert!(data != [1; 8], "the kernel has run");
        assert_eq!(client.end().await.unwrap().code(), tonic::Code::Unavailable, "{isolate}");
        assert!(stopped.await.unwrap().success());
    }
}

#[tokio::test]
async fn a_trace_shows_each_command_from_its_message_to_its_answer_and_the_slots() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    // The trace has no commands of sessions in tenant processes.
    let manager = Manager::start(&["--trace", path.to_str().unwrap(), "--isolate", "protocol"]);
    let mut client = Client::connect(&manager).await;
    let Ready { queue, kernel, buffer } = client.ready(INCREASE, "increase", 4).await;
    let write = client.write(queue, buffer, ints([1])).await;
    let one = scalar(&1_i32.to_le_bytes());
    let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer), one], 1);
    let read = client.read(queue, buffer, 4);
    let event = read.event;
    client.flush(vec![write, launch, read]).await;
    assert_eq!(client.completion(event).await.1, ints([2]));
    let events = harness::traced(&path, |events| {
        let ended = |name: &str| events.iter().any(|event| event["name"] == name && event["ph"] == "e");
        // In either order: a slot is free before the last answer is sent.
        events.iter().any(|event| event["cat"] == "slot")
            && ["write", "kernel", "read"].into_iter().all(ended)
    })
    .await;
    for name in ["write", "kernel", "read"] {
        let of = |phase: &str| {
            events.iter().find(|event| event["name"] == name && event["ph"] == phase).expect(name)
        };
        let (begin, end) = (of("b"), of("e"));
        assert_eq!(begin["id"], end["id"]);
        let inside: Vec<f64> = events
            .iter()
            .filter(|event| event["id"] == begin["id"] && event["name"] != name)
            .map(|event| event["ts"].as_f64().unwrap())
            .collect();
        assert_eq!(inside.len(), 8, "four parts, each with beginning and end");
        let (first, last) = (begin["ts"].as_f64().unwrap(), end["ts"].as_f64().unwrap());
        assert!(inside.is_sorted() && inside[0] >= first && inside[7] <= last, "{inside:?}");
    }
}

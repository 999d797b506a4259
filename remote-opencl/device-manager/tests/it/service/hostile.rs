//! Clients that break the protocol, the standard or the rules between tenants.

mod connections;
mod exhaustion;
mod memory;

use crate::harness::{Client, Manager, Ready, after, hello, next, raw};
use crate::service::{ADD, INCREASE, ints, scalar};
use bytes::Bytes;
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;
use tonic::Code;

async fn still_serves(manager: &Manager) {
    let mut client = Client::connect(manager).await;
    client.context().await;
}

#[tokio::test]
async fn a_session_starts_with_hello_in_the_right_version() {
    let manager = Manager::start(&[]);
    for (first, code) in [
        (v1::ClientMessage { kind: None }, Code::InvalidArgument),
        (v1::ClientMessage { kind: Some(Kind::Flush(v1::Flush::default())) }, Code::InvalidArgument),
        (hello(PROTOCOL_VERSION + 1), Code::FailedPrecondition),
    ] {
        let (to, mut from) = raw(manager.channel().await).await;
        to.send(first).await.unwrap();
        assert_eq!(next(&mut from).await.unwrap_err().code(), code);
    }
    still_serves(&manager).await;
}

#[tokio::test]
async fn messages_that_break_the_protocol_end_the_session_and_no_other() {
    let manager = Manager::start(&[]);
    let witness = Client::connect(&manager).await;
    let chunk = |length, offset| {
        Kind::Chunk(v1::Chunk { transfer: 1, length, offset, data: Bytes::from_static(b"abc") })
    };
    let context = |context, devices| Method::CreateContext(v1::CreateContext { context, devices });
    let call = |method| Kind::Call(v1::Call { id: 0, method: Some(method), trace: None });
    let command = v1::Command { event: 9, ..v1::Command::default() };
    let flush = |commands| Kind::Flush(v1::Flush { commands });
    let lost = v1::Data { form: Some(v1::data::Form::Transfer(v1::Transfer { id: 3, length: 4 })) };
    let write = v1::WriteBuffer { buffer: 1, offset: 0, data: Some(lost) };
    let cases = [
        vec![Kind::Hello(v1::Hello::default())],
        vec![chunk(3, 1)],
        vec![chunk(u64::MAX, 0), chunk(u64::MAX, 4)],
        vec![call(context(0, vec![1]))],
        vec![call(context(5, vec![1])), call(context(5, vec![1]))],
        vec![Kind::Call(v1::Call { id: 1, method: None, trace: None })],
        vec![flush(vec![command.clone(), command.clone()])],
        vec![flush(vec![v1::Command { event: 0, ..command.clone() }])],
        vec![flush(vec![v1::Command { operation: Some(Operation::WriteBuffer(write)), ..command }])],
    ];
    for case in cases {
        let client = Client::connect(&manager).await;
        let shown = format!("{case:?}");
        for kind in case {
            client.send(kind).await;
        }
        let status = client.end().await.expect(&shown);
        assert_eq!(status.code(), Code::InvalidArgument, "{shown}: {status}");
        assert!(!status.message().is_empty());
    }
    let mut witness = witness;
    witness.context().await;
}

#[tokio::test]
async fn garbage_on_the_socket_harms_nobody() {
    use tokio::io::AsyncWriteExt as _;
    let manager = Manager::start(&[]);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0"]
    {
        let mut socket = tokio::net::UnixStream::connect(manager.socket()).await.unwrap();
        socket.write_all(garbage).await.unwrap();
    }
    still_serves(&manager).await;
}

#[tokio::test]
async fn ids_that_name_nothing_give_the_standards_codes() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (id, device) = (client.id(), client.device());
    let create = v1::CreateQueue { queue: id, context: 999, device, properties: 0 };
    assert_eq!(client.call(Method::CreateQueue(create)).await.status, -34, "CL_INVALID_CONTEXT");
    let id = client.id();
    let create = v1::CreateContext { context: id, devices: vec![77] };
    assert_eq!(client.call(Method::CreateContext(create)).await.status, -33, "CL_INVALID_DEVICE");
    let queue = client.queue(context, 0).await;
    let cases = [
        (client.read(queue, 999, 4), -38),
        (client.read(999, 1, 4), -36),
        (client.launch(queue, 999, vec![], 1), -48),
        (client.command(queue, Operation::Marker(v1::Marker {})), 0),
    ];
    for (command, status) in cases {
        assert_eq!(client.run(command).await, status);
    }
    let marker = client.command(queue, Operation::Marker(v1::Marker {}));
    let event = marker.event;
    client.flush(vec![after(marker, &[12345])]).await;
    assert_eq!(client.status(event).await, -57, "CL_INVALID_EVENT_WAIT_LIST");
}

#[tokio::test]
async fn an_object_whose_creation_failed_unheard_answers_with_its_error() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 0).await;
    let read = client.read(queue, buffer, 4);
    assert_eq!(client.run(read).await, -61, "CL_INVALID_BUFFER_SIZE");
}

#[tokio::test]
async fn ranges_outside_a_buffer_are_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 16).await;
    for (offset, size) in [(0, 17), (16, 1), (u64::MAX, 2), (0, 0), (8, u64::MAX)] {
        let read = client.command(
            queue,
            Operation::ReadBuffer(v1::ReadBuffer {
                buffer,
                offset,
                size,
                into: None,
                memory_at_start: false,
            }),
        );
        assert_eq!(client.run(read).await, -30, "{offset} {size}");
    }
    let write = client.write(queue, buffer, vec![1; 17]).await;
    assert_eq!(client.run(write).await, -30);
    let fill = v1::FillBuffer { buffer, pattern: Bytes::from_static(b"abc"), offset: 0, size: 3 };
    let fill = client.command(queue, Operation::FillBuffer(fill));
    assert_eq!(client.run(fill).await, -30);
}

#[tokio::test]
async fn no_bytes_pass_for_a_pointer_whether_the_runtime_tells_the_arguments_or_not() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let source = client.source(context, INCREASE).await;
    assert_eq!(client.build(source).await.0, 0);
    let binary = client.binary(source).await;
    let (from_binary, _) = client.program_from(context, &binary).await;
    let buffer = client.buffer(context, 4).await;
    for program in [source, from_binary] {
        let kernel = client.kernel(program, "increase").await;
        let cases = [
            (vec![scalar(&0x4141_4141_4141_4141_u64.to_le_bytes()), scalar(&[1, 0, 0, 0])], -38),
            (vec![Value::Buffer(buffer), Value::Buffer(buffer)], -51),
            (vec![Value::Buffer(buffer), scalar(&[1, 0])], -51),
            (vec![Value::Buffer(queue), scalar(&[1, 0, 0, 0])], -38),
            (vec![Value::Buffer(buffer), scalar(&[1, 0, 0, 0]), scalar(&[1])], -49),
        ];
        for (args, status) in cases {
            let launch = client.launch(queue, kernel, args, 1);
            assert_eq!(client.run(launch).await, status);
        }
        let fresh = client.kernel(program, "increase").await;
        let launch = client.launch(queue, fresh, vec![Value::Buffer(buffer)], 1);
        assert_eq!(client.run(launch).await, -52, "CL_INVALID_KERNEL_ARGS");
    }
}

#[tokio::test]
async fn a_pointer_names_nothing_but_an_allocation_of_unified_shared_memory() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let Ready { queue, kernel, buffer } = client.ready(INCREASE, "increase", 4).await;
    for (buffer, offset, status) in
        [(buffer, 0, -50), (buffer, u64::MAX, -50), (999, 0, -38), (queue, 0, -38)]
    {
        let pointer = Value::Pointer(v1::Pointer { buffer, offset });
        let launch = client.launch(queue, kernel, vec![pointer, scalar(&[1, 0, 0, 0])], 1);
        assert_eq!(client.run(launch).await, status, "{buffer} {offset}");
    }
    let segment = client.id();
    let create = v1::CreatePlacedSegment { segment, size: 4096, mapped: false };
    // PoCL has no unified shared memory: CL_INVALID_OPERATION.
    let expected = if fpga_test_kit::manager::runtime() == "pocl" { -59 } else { 0 };
    assert_eq!(client.call(Method::CreatePlacedSegment(create)).await.status, expected);
    let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer), scalar(&[1, 0, 0, 0])], 1);
    assert_eq!(client.run(launch).await, 0);
}

#[tokio::test]
async fn a_binary_that_is_not_what_it_was_announced_as_is_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (program, device) = (client.id(), client.device());
    let digest = Bytes::from_static(&[7; 32]);
    let binaries = vec![v1::BinaryRef { device, digest: digest.clone(), length: 3 }];
    let create = v1::CreateProgramWithBinary { program, context, binaries, prints: false };
    assert_eq!(client.call(Method::CreateProgramWithBinary(create)).await.status, 0);
    let data = Some(client.data(b"abc".to_vec()).await);
    let provide = v1::ProvideBinary { program, digest, data };
    assert_eq!(client.call(Method::ProvideBinary(provide)).await.status, -42, "CL_INVALID_BINARY");
    let source = client.source(context, ADD).await;
    assert_eq!(client.build(source).await.0, 0, "the session goes on");
}

#[tokio::test]
async fn a_tenants_bytes_are_not_found_in_anothers_new_buffer() {
    const SIZE: usize = 1 << 20;
    let manager = Manager::start(&[]);
    for _ in 0..8 {
        let mut owner = Client::connect(&manager).await;
        let context = owner.context().await;
        let queue = owner.queue(context, 0).await;
        let buffer = owner.buffer(context, SIZE as u64).await;
        let write = owner.write(queue, buffer, vec![0xA5; SIZE]).await;
        assert_eq!(owner.run(write).await, 0);
        drop(owner);

        let mut other = Client::connect(&manager).await;
        let context = other.context().await;
        let (one, two) = (other.queue(context, 0).await, other.queue(context, 0).await);
        let buffer = other.buffer(context, SIZE as u64).await;
        // A first write of the whole buffer makes zeroing unnecessary; a write of a part must not expose
        // earlier contents.
        let part = other.write(one, buffer, ints([1])).await;
        let read = other.read(two, buffer, SIZE as u64);
        let event = read.event;
        other.flush(vec![part, read]).await;
        let (_, data) = other.completion(event).await;
        assert!(data[4..].iter().all(|byte| *byte == 0), "stale bytes");
    }
}

#[tokio::test]
async fn a_source_can_include_no_file_of_the_manager_whatever_way_it_names_it() {
    const SECRET: &str = "secret_of_the_manager_4711";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.h");
    // Not valid as source, so a compiler that reads it shows the line in its log.
    std::fs::write(&path, format!("{SECRET} {SECRET}!\n")).unwrap();
    let (path, place) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
    let kernel = "kernel void k(global int *a) { a[0] = 1; }";
    let cases = [
        (format!("#include \"{path}\"\n{kernel}"), String::new()),
        (format!("#define F \"{path}\"\n#include F\n{kernel}"), String::new()),
        (format!("#include \"secret.h\"\n{kernel}"), format!("-I {place}")),
        (format!("#include <secret.h>\n{kernel}"), format!("-I{place}")),
        (format!("#include \"/proc/self/environ\"\n{kernel}"), String::new()),
        (format!("#include \"/etc/passwd\"\n{kernel}"), String::new()),
    ];
    // Without confinement the secret must appear, or the test would prove nothing.
    for (confined, expected) in [("off", true), ("required", false)] {
        let manager = Manager::start(&["--confine-builds", confined]);
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        let mut seen = false;
        for (source, options) in &cases {
            let program = client.source(context, source).await;
            let devices = Vec::new();
            let build = v1::BuildProgram { program, devices, options: options.clone(), includes: None };
            let reply = client.call(Method::BuildProgram(build)).await;
            let log = format!("{reply:?}");
            seen |= log.contains(SECRET);
            if !expected {
                assert_ne!(reply.status, 0, "{source} {options}");
                for leaked in [SECRET, "PATH=", "root:"] {
                    // Text that the client sent itself does not count.
                    assert!(!log.contains(leaked), "{source} {options}: {log}");
                }
            }
        }
        assert_eq!(seen, expected, "{confined}");
        let program = client.source(context, kernel).await;
        assert_eq!(client.build(program).await.0, 0, "programs without includes build on");
    }
}

#[tokio::test]
async fn only_compiled_programs_are_linked() {
    const INVALID_OPERATION: i32 = -59;
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let compiled = client.source(context, INCREASE).await;
    let compile = |program| {
        let (devices, options, headers) = (Vec::new(), String::new(), Vec::new());
        Method::CompileProgram(v1::CompileProgram { program, devices, options, headers, includes: None })
    };
    assert_eq!(client.call(compile(compiled)).await.status, 0);
    let source = client.source(context, "kernel void other(void) {}").await;
    let broken = client.source(context, "no program").await;
    assert_ne!(client.call(compile(broken)).await.status, 0);
    let built = client.source(context, "kernel void third(void) {}").await;
    assert_eq!(client.build(built).await.0, 0);
    for programs in [vec![source], vec![broken], vec![built], vec![compiled, source], vec![compiled, broken]]
    {
        let (program, devices, options) = (client.id(), Vec::new(), String::new());
        let link = v1::LinkProgram { program, context, devices, options, programs: programs.clone() };
        let reply = client.call(Method::LinkProgram(link)).await;
        assert_eq!(reply.status, INVALID_OPERATION, "{programs:?}");
    }
    let (program, devices, options) = (client.id(), Vec::new(), String::new());
    let link = v1::LinkProgram { program, context, devices, options, programs: vec![compiled] };
    assert_eq!(client.call(Method::LinkProgram(link)).await.status, 0);
    client.kernel(program, "increase").await;
}

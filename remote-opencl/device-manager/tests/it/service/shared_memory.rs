//! Segments: the side socket, and attacks of a hostile client.

use crate::harness::{Client, Manager, after, binaries_result, digest_of};
use crate::service::{INCREASE, ints, scalar};
use bytes::Bytes;
use fpga_protocol::segments::{KEY_BYTES, SIDE_SUFFIX, TAKEN};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::{patience, until_async};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::fs::File;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use tonic::Code;

const SIZE: u64 = 1 << 20;

/// The connection on which a key was sent, and the manager's answer to it.
fn show(manager: &Manager, key: &[u8]) -> (UnixStream, Option<u8>) {
    let mut path = manager.socket().into_os_string();
    path.push(SIDE_SUFFIX);
    let mut side = UnixStream::connect(path).unwrap();
    side.set_read_timeout(Some(patience())).unwrap();
    side.write_all(key).unwrap();
    let mut byte = [0];
    let answer = side.read_exact(&mut byte).ok().map(|()| byte[0]);
    (side, answer)
}

pub fn open_side(manager: &Manager, client: &Client) -> UnixStream {
    let (side, answer) = show(manager, &client.welcome.side_key);
    assert_eq!(answer, Some(TAKEN));
    side
}

pub fn receive(side: &UnixStream) -> (u64, File) {
    let mut id = [0; 8];
    let mut control = nix::cmsg_space!([RawFd; 1]);
    let mut bytes = [IoSliceMut::new(&mut id)];
    let message =
        recvmsg::<()>(side.as_raw_fd(), &mut bytes, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC).unwrap();
    let Some(ControlMessageOwned::ScmRights(fds)) = message.cmsgs().unwrap().next() else {
        panic!("no descriptor came")
    };
    // SAFETY: the kernel has just made the descriptor for this process.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fds[0]) });
    (u64::from_le_bytes(id), file)
}

pub async fn create(client: &mut Client, side: &UnixStream, size: u64) -> (u64, File) {
    let segment = client.id();
    let reply = client.call(Method::CreateSegment(v1::CreateSegment { segment, size })).await;
    assert_eq!(reply.status, 0);
    let (id, file) = receive(side);
    assert_eq!((id, file.metadata().unwrap().len()), (segment, size));
    (segment, file)
}

fn range(segment: u64, offset: u64, length: u64) -> v1::SegmentRange {
    v1::SegmentRange { segment, offset, length }
}

fn shared(range: v1::SegmentRange) -> Option<v1::Data> {
    Some(v1::Data { form: Some(Form::Segment(range)) })
}

fn write_from(client: &mut Client, queue: u64, buffer: u64, from: v1::SegmentRange) -> v1::Command {
    client.command(queue, Operation::WriteBuffer(v1::WriteBuffer { buffer, offset: 0, data: shared(from) }))
}

fn read_into(client: &mut Client, queue: u64, buffer: u64, into: v1::SegmentRange) -> v1::Command {
    let read =
        v1::ReadBuffer { buffer, offset: 0, size: into.length, into: Some(into), memory_at_start: false };
    client.command(queue, Operation::ReadBuffer(read))
}

#[tokio::test]
async fn commands_work_on_ranges_of_segments_and_so_do_buffers() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    assert!(client.welcome.buffers_in_segments, "these runtimes work on the very bytes");
    let side = open_side(&manager, &client);
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let program = client.source(context, INCREASE).await;
    assert_eq!(client.build(program).await.0, 0);
    let kernel = client.kernel(program, "increase").await;
    let (segment, file) = create(&mut client, &side, SIZE).await;
    for len in [0, SIZE - 1, SIZE * 2] {
        assert!(file.set_len(len).is_err(), "sealed");
    }
    let (plain, stored) = (client.buffer(context, 4000).await, client.id());
    let storage = Some(range(segment, 8192, 4000));
    client
        .cast(Method::CreateBuffer(v1::CreateBuffer {
            buffer: stored,
            context,
            flags: 1,
            size: 4000,
            initial: None,
            storage,
        }))
        .await;
    file.write_all_at(&ints(0..1000), 64).unwrap();
    file.write_all_at(&ints(0..1000), 8192).unwrap();
    let commands = vec![
        write_from(&mut client, queue, plain, range(segment, 64, 4000)),
        client.launch(queue, kernel, vec![Value::Buffer(plain), scalar(&[1, 0, 0, 0])], 1000),
        read_into(&mut client, queue, plain, range(segment, 65536, 4000)),
        client.launch(queue, kernel, vec![Value::Buffer(stored), scalar(&[2, 0, 0, 0])], 1000),
    ];
    let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
    client.flush(commands).await;
    for event in events {
        let (completion, data) = client.completion(event).await;
        assert_eq!((completion.status, data.len()), (0, 0));
    }
    let found = |offset| {
        let mut bytes = vec![0; 4000];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    assert_eq!(found(65536), ints(1..1001));
    assert_eq!(found(8192), ints(2..1002), "the kernel worked in place");
    for (direction, path, bytes) in [("Received", "Shared", 4000), ("Sent", "Shared", 4000)] {
        let name = "fpga_device_manager_data_bytes_total";
        manager.counts(&format!("{name}{{direction=\"{direction}\",path=\"{path}\"}} {bytes}")).await;
    }
    manager.counts("fpga_device_manager_buffer_bytes_total{storage=\"Shared\"} 4000").await;
    manager.counts("fpga_device_manager_buffer_bytes_total{storage=\"Vendor\"} 4000").await;
}

#[tokio::test]
async fn a_wrong_key_and_a_used_one_open_nothing() {
    let manager = Manager::start(&["--listen", "tcp://127.0.0.1:0", "--insecure-tcp"]);
    let mut client = Client::connect(&manager).await;
    assert_eq!(client.welcome.side_key.len(), KEY_BYTES);
    assert_eq!(show(&manager, &[0; KEY_BYTES]).1, None);
    assert_eq!(show(&manager, &client.welcome.side_key[1..]).1, None, "too short");
    let side = open_side(&manager, &client);
    assert_eq!(show(&manager, &client.welcome.side_key).1, None, "used");
    create(&mut client, &side, 4096).await;
    let mut without = Client::connect(&manager).await;
    let segment = without.id();
    let asked = Method::CreateSegment(v1::CreateSegment { segment, size: 4096 });
    assert_eq!(without.call(asked).await.status, -59, "nowhere to pass it");
    let remote = Client::over(manager.tcp_channel().await).await;
    assert!(remote.welcome.side_key.is_empty(), "nobody elsewhere can have it");
    let manager = Manager::start(&["--shared-memory", "off"]);
    assert!(Client::connect(&manager).await.welcome.side_key.is_empty());
}

#[tokio::test]
async fn ranges_that_lie_end_the_session_of_the_liar_alone() {
    let manager = Manager::start(&[]);
    let mut witness = Client::connect(&manager).await;
    let witness_side = open_side(&manager, &witness);
    let (witness_segment, _file) = create(&mut witness, &witness_side, 4096).await;
    let lies = [
        range(99, 0, 4),
        range(1, 0, SIZE + 1),
        range(1, SIZE, 64),
        range(1, 3, 4),
        range(1, 0, 0),
        range(1, 64, u64::MAX),
        range(1, u64::MAX - 63, 64),
    ];
    for lie in lies {
        for way in 0..4 {
            let mut client = Client::connect(&manager).await;
            let side = open_side(&manager, &client);
            let (segment, _file) = create(&mut client, &side, SIZE).await;
            let lie = if lie.segment == 1 { v1::SegmentRange { segment, ..lie } } else { lie };
            let context = client.context().await;
            let queue = client.queue(context, 0).await;
            let buffer = client.buffer(context, SIZE).await;
            match way {
                0 => {
                    let write = write_from(&mut client, queue, buffer, lie);
                    client.flush(vec![write]).await;
                }
                1 => {
                    let read = read_into(&mut client, queue, buffer, lie);
                    client.flush(vec![read]).await;
                }
                2 | 3 => {
                    let (initial, storage) = if way == 2 { (shared(lie), None) } else { (None, Some(lie)) };
                    let create = v1::CreateBuffer {
                        buffer: 77,
                        context,
                        flags: 1,
                        size: lie.length,
                        initial,
                        storage,
                    };
                    client.cast(Method::CreateBuffer(create)).await;
                }
                _ => unreachable!(),
            }
            let status = client.end().await.unwrap();
            assert_eq!(status.code(), Code::InvalidArgument, "{lie:?} {way}: {status}");
        }
    }
    // A segment of another session is invalid.
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 64).await;
    let write = write_from(&mut client, queue, buffer, range(witness_segment, 0, 64));
    client.flush(vec![write]).await;
    assert_eq!(client.end().await.unwrap().code(), Code::InvalidArgument);
    witness.context().await;
}

#[tokio::test]
async fn sizes_and_ids_that_cannot_be_and_too_much_memory_are_refused() {
    let manager = Manager::start(&[]);
    for (segment, size) in [(0, 4096), (5, 0), (5, 4097), (5, u64::MAX)] {
        let client = Client::connect(&manager).await;
        let _side = open_side(&manager, &client);
        client.cast(Method::CreateSegment(v1::CreateSegment { segment, size })).await;
        assert_eq!(client.end().await.unwrap().code(), Code::InvalidArgument, "{segment} {size}");
    }
    let mut client = Client::connect(&manager).await;
    let side = open_side(&manager, &client);
    let mut given = 0;
    let refused = loop {
        let segment = client.id();
        let reply = client.call(Method::CreateSegment(v1::CreateSegment { segment, size: 4096 })).await;
        if reply.status != 0 {
            break reply.status;
        }
        given += 1;
        receive(&side);
    };
    assert_eq!((refused, given), (-5, fpga_protocol::segments::MAX_SEGMENTS));
    client.context().await;
}

#[tokio::test]
async fn a_client_that_takes_no_descriptors_holds_nobody_up() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let _side = open_side(&manager, &client);
    for _ in 0..200 {
        let segment = client.id();
        client.cast(Method::CreateSegment(v1::CreateSegment { segment, size: 4096 })).await;
    }
    client.context().await;
}

#[tokio::test]
async fn overlapping_ranges_harm_only_who_names_them() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let side = open_side(&manager, &client);
    let (segment, file) = create(&mut client, &side, SIZE).await;
    let context = client.context().await;
    let (one, two) = (client.queue(context, 0).await, client.queue(context, 0).await);
    let mut commands = Vec::new();
    for round in 0..50_u64 {
        let (a, b) = (client.buffer(context, 65536).await, client.buffer(context, 65536).await);
        commands.push(write_from(&mut client, one, a, range(segment, round * 64, 65536)));
        commands.push(read_into(&mut client, two, b, range(segment, round * 128, 65536)));
        file.write_all_at(&[0xEE; 4096], round * 100).unwrap();
    }
    let last = commands.iter().map(|command| command.event).collect::<Vec<_>>();
    client.flush(commands).await;
    for event in last {
        assert_eq!(client.status(event).await, 0);
    }
}

#[tokio::test]
async fn a_binary_that_changes_in_shared_memory_while_it_is_taken_is_what_its_digest_says_or_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let side = open_side(&manager, &client);
    let context = client.context().await;
    let source = client.source(context, INCREASE).await;
    assert_eq!(client.build(source).await.0, 0);
    let binary = client.binary(source).await;
    let size = (binary.len() as u64).next_multiple_of(4096);
    let (segment, file) = create(&mut client, &side, size).await;
    // Changes a byte back and forth as fast as possible, while the binary is sent again and again.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flipping = std::thread::spawn({
        let (stop, file, first) = (stop.clone(), file.try_clone().unwrap(), binary[0]);
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for byte in [!first, first] {
                    file.write_all_at(&[byte], 0).unwrap();
                }
            }
        }
    });
    let digest = Bytes::copy_from_slice(digest_of(&binary).as_bytes());
    for _ in 0..50 {
        file.write_all_at(&binary, 0).unwrap();
        let (program, device) = (client.id(), client.device());
        let length = binary.len() as u64;
        let binaries = vec![v1::BinaryRef { device, digest: digest.clone(), length }];
        let create = v1::CreateProgramWithBinary { program, context, binaries, prints: false };
        let reply = client.call(Method::CreateProgramWithBinary(create)).await;
        if binaries_result(&reply).missing.is_empty() {
            // It was stored in an earlier attempt: the store then has the right bytes, whatever the segment
            // has now.
            assert_eq!(client.build(program).await.0, 0);
            break;
        }
        let data = shared(range(segment, 0, length));
        let provide = v1::ProvideBinary { program, digest: digest.clone(), data };
        let status = client.call(Method::ProvideBinary(provide)).await.status;
        assert!([0, -42].contains(&status), "{status}");
        if status == 0 {
            assert_eq!(client.build(program).await.0, 0);
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    flipping.join().unwrap();
}

#[tokio::test]
async fn a_session_that_goes_in_the_middle_of_its_transfers_leaves_nothing() {
    let mut manager = Manager::start(&[]);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", manager.id())).unwrap().count();
    let mapped = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", manager.id())).unwrap();
        maps.lines().filter(|line| line.contains("memfd:fpga-segment")).count()
    };
    let mut before = 0;
    for round in 0..100 {
        let mut client = Client::connect(&manager).await;
        let side = open_side(&manager, &client);
        let (segment, _file) = create(&mut client, &side, 8 * SIZE).await;
        let context = client.context().await;
        let queue = client.queue(context, 0).await;
        let buffer = client.buffer(context, 4 * SIZE).await;
        let held = client.user_event(context).await;
        let commands = vec![
            write_from(&mut client, queue, buffer, range(segment, 0, 4 * SIZE)),
            read_into(&mut client, queue, buffer, range(segment, 4 * SIZE, 4 * SIZE)),
            after(write_from(&mut client, queue, buffer, range(segment, 0, 4 * SIZE)), &[held]),
        ];
        let first = commands[0].event;
        client.flush(commands).await;
        if round % 2 == 0 {
            client.status(first).await;
        }
        drop((client, side));
        if round == 10 {
            // Connections close after their segments, so this number may be too high by a few.
            until_async("no segment to be mapped", async || mapped() == 0).await;
            before = descriptors();
        }
    }
    until_async("the descriptors of all sessions to be closed", async || {
        let (descriptors, mapped) = (descriptors(), mapped());
        let is_closed = descriptors <= before && mapped == 0;
        if is_closed { Ok(()) } else { Err(format!("{descriptors} of {before}, and {mapped} segments")) }
    })
    .await;
    assert!(manager.terminate().success());
}

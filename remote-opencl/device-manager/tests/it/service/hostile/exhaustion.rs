//! Clients that try to take all of the manager's memory or all of its places.

use crate::harness::{Client, Manager};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use fpga_test_kit::{patience, until_async};

/// Memory that the manager holds, in bytes: without pages of files, which are in memory or not as the system likes.
pub(super) fn held(manager: &Manager) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", manager.id())).unwrap();
    let kib = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    (kib("RssAnon:") + kib("RssShmem:")) << 10
}

/// Whether a session begins. The manager may close the connection before.
async fn enters(manager: &Manager) -> bool {
    let entering = async { Client::enters(manager.try_channel().await?).await };
    entering.await.is_ok()
}

/// The first bytes of an HTTP/2 client, up to a request for a session.
fn request() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/fpga.remote.v1.DeviceManager/Session"),
        (":authority", "manager"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        headers.push(0);
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).unwrap());
            headers.extend_from_slice(text.as_bytes());
        }
    }
    frame(&mut bytes, u32::try_from(headers.len()).unwrap(), 1, 4, 1);
    bytes.extend(headers);
    bytes
}

/// The head of a frame that declares `length` bytes.
fn frame(bytes: &mut Vec<u8>, length: u32, kind: u8, flags: u8, stream: u32) {
    bytes.extend_from_slice(&length.to_be_bytes()[1..]);
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
}

#[tokio::test]
async fn thousands_of_connections_that_say_nothing_leave_a_session_alone_and_go() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    const CONNECTIONS: usize = 3000;
    let manager = Manager::start(&[]);
    // The limit of this process only; the manager keeps the limit that it was started with.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut witness = Client::connect(&manager).await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        // Beyond its limit the manager closes connections at once, which may show here already.
        if let Ok(socket) = tokio::net::UnixStream::connect(manager.socket()).await {
            silent.push(socket);
        }
    }
    assert!(silent.len() > 2000, "only {} got through", silent.len());
    let context = witness.context().await;
    let queue = witness.queue(context, 0).await;
    let buffer = witness.buffer(context, 4).await;
    let read = witness.read(queue, buffer, 4);
    let event = read.event;
    witness.flush(vec![read]).await;
    assert_eq!(witness.completion(event).await.1, [0; 4]);
    drop(silent);
    until_async("somebody else to get in", async || enters(&manager).await).await;
}

#[tokio::test]
async fn an_upload_that_never_ends_takes_no_memory() {
    const CHUNK: usize = 1 << 20;
    const CHUNKS: u64 = 192;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenants.json");
    std::fs::write(&path, r#"{"default": {"quota": {"upload": "1MiB"}}}"#).unwrap();
    let manager = Manager::start(&["--tenants", path.to_str().unwrap()]);
    let mut client = Client::connect(&manager).await;
    client.context().await;
    let before = held(&manager);
    let data = Bytes::from(vec![7; CHUNK]);
    for at in 0..CHUNKS {
        let offset = at * CHUNK as u64;
        let chunk = v1::Chunk { transfer: 1 << 63 | 1, length: u64::MAX, offset, data: data.clone() };
        client.send(Kind::Chunk(chunk)).await;
    }
    // The manager answers only after it has taken all chunks.
    client.context().await;
    let grown = held(&manager).saturating_sub(before);
    assert!(grown < CHUNKS * CHUNK as u64 / 2, "{grown} bytes more for an upload of which none may be kept");
    manager.counts("fpga_device_manager_quota_refusals_total{quota=\"Upload\"} 1").await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_session_before_the_manager_its_memory() {
    /// Far more than the manager holds for a session, which is a sixth of the memory for clients.
    const READS: usize = 48;
    const SIZE: u64 = 16 << 20;
    const MOST: u64 = 256 << 20;
    let manager = Manager::start(&["--client-memory", "1GiB"]);
    let mut witness = Client::connect(&manager).await;
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, SIZE).await;
    let before = held(&manager);
    for _ in 0..READS {
        let read = client.read(queue, buffer, SIZE);
        if client.try_send(Kind::Flush(v1::Flush { commands: vec![read] })).await.is_err() {
            break;
        }
    }
    let mut most = 0;
    until_async("the end of its session", async || {
        most = most.max(held(&manager).saturating_sub(before));
        manager.sessions() == 1
    })
    .await;
    assert!(most < MOST, "{most} bytes for a client that reads nothing");
    witness.context().await;
}

/// Whether the manager has not closed a connection.
pub(super) fn is_open(socket: &tokio::net::UnixStream) -> bool {
    let mut bytes = [0; 1024];
    loop {
        match socket.try_read(&mut bytes) {
            Ok(1..) => {}
            Ok(0) => return false,
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[tokio::test]
async fn silent_connections_in_all_places_keep_nobody_out() {
    let manager = Manager::start(&[]);
    // The silent ones end by themselves after 10 s: that others get in then shows nothing.
    until_async("five clients to get in while silent connections are open", async || {
        let mut silent = Vec::new();
        for _ in 0..600 {
            if let Ok(socket) = tokio::net::UnixStream::connect(manager.socket()).await {
                silent.push(socket);
            }
        }
        for number in 0..5 {
            // One that is silent for a second makes room.
            until_async(format!("client {number} to get in"), async || enters(&manager).await).await;
        }
        let open = silent.iter().filter(|socket| is_open(socket)).count();
        if open > 0 { Ok(()) } else { Err("all silent connections have ended") }
    })
    .await;
}

#[tokio::test]
async fn lengths_that_lie_at_any_level_end_the_liars_connection_or_session_and_take_no_memory() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const DATA: u8 = 0;
    let manager = Manager::start(&[]);
    let mut witness = Client::connect(&manager).await;
    let before = held(&manager);
    let message = |length: u32, rest: &[u8]| {
        let mut bytes = request();
        frame(&mut bytes, 5 + u32::try_from(rest.len()).unwrap(), DATA, 0, 1);
        bytes.push(0);
        bytes.extend(length.to_be_bytes());
        bytes.extend_from_slice(rest);
        bytes
    };
    let mut cases = vec![
        // A message that declares 4 GiB, and one that is longer than declared.
        message(u32::MAX, b"abc"),
        message(1, b"\x0a\x02\x08\x01"),
        // Lengths inside a message: a Hello that declares 4 GiB, and a varint that never ends.
        message(6, b"\x0a\xff\xff\xff\xff\x0f"),
        message(11, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];
    // A frame larger than agreed, and frames that belong to no stream.
    for (length, stream) in [(0xFF_FFFF, 1), (4, 7), (4, 0)] {
        let mut bytes = request();
        frame(&mut bytes, length, DATA, 0, stream);
        bytes.extend([0; 4]);
        cases.push(bytes);
    }
    let lie = async |case: Vec<u8>| {
        let mut socket = tokio::net::UnixStream::connect(manager.socket()).await.unwrap();
        socket.write_all(&case).await.unwrap();
        let mut answer = Vec::new();
        // The connection ends by an error, or because it has no session for too long.
        let ends = tokio::time::timeout(patience(), socket.read_to_end(&mut answer)).await;
        assert!(ends.is_ok(), "the connection stays: {case:?}");
    };
    futures::future::join_all(cases.into_iter().map(lie)).await;
    witness.context().await;
    manager.has_no_more_sessions_than(1).await;
    let grown = held(&manager).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for lengths that lie");
}

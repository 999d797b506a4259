//! The command ring of a session, used without a client library.

use super::harness::{Client, Manager, Ready};
use super::shared_memory::open_side;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::{self, server_message};
use fpga_ring::{Bell, Consumer, Direction, Frames, Layout, Memory, Producer, frame};
use fpga_test_kit::until_async;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use prost::Message as _;
use std::fs::File;
use std::io::{IoSliceMut, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const CL_INVALID_OPERATION: i32 = -59;
const CL_QUEUE_PROFILING_ENABLE: u64 = 2;

/// The words of a ring, read and written through the file: slow, but without a mapping.
struct Words(Vec<FileWord>);

struct FileWord {
    file: Arc<File>,
    offset: u64,
}

impl fpga_ring::Word for FileWord {
    fn load(&self, _: Ordering) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, self.offset).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn store(&self, value: u64, _: Ordering) {
        self.file.write_all_at(&value.to_le_bytes(), self.offset).unwrap();
    }

    fn add(&self, more: u64) {
        self.store(self.load(Ordering::SeqCst).wrapping_add(more), Ordering::SeqCst);
    }

    fn fence() {
        static ANY: AtomicU64 = AtomicU64::new(0);
        ANY.fetch_add(1, Ordering::SeqCst);
    }
}

impl Memory for Words {
    type Word = FileWord;

    fn words(&self) -> &[FileWord] {
        &self.0
    }
}

/// The client's side of a session's ring.
pub struct Ring {
    file: Arc<File>,
    producer: Producer<Arc<Words>>,
    consumer: Consumer<Arc<Words>>,
    frames: Frames,
    bell: Mutex<UnixStream>,
}

impl Ring {
    pub async fn open(manager: &Manager, client: &mut Client) -> Self {
        Self::open_as(v1::OpenRing::default(), manager, client).await
    }

    /// Opens a ring whose client promises to wake a manager that dozes, but never does.
    async fn open_without_waking(manager: &Manager, client: &mut Client) -> Self {
        Self::open_as(v1::OpenRing { futex: true }, manager, client).await
    }

    async fn open_as(open: v1::OpenRing, manager: &Manager, client: &mut Client) -> Self {
        let side = open_side(manager, client);
        let id = client.last_id() + 1;
        let reply = client.call(Method::OpenRing(open)).await;
        assert_eq!((reply.id, reply.status), (id, 0));
        let (memory, bell) = receive(&side, id);
        let layout = Layout::new(usize::try_from(client.welcome.ring_words).unwrap()).unwrap();
        let file = Arc::new(File::from(memory));
        let word = |index: usize| FileWord { file: file.clone(), offset: index as u64 * 8 };
        let words = Arc::new(Words((0..layout.words()).map(word).collect()));
        Self {
            producer: Producer::new(words.clone(), layout, Direction::ToManager).unwrap(),
            consumer: Consumer::new(words, layout, Direction::ToClient).unwrap(),
            frames: Frames::new(1 << 22),
            file,
            bell: Mutex::new(UnixStream::from(bell)),
        }
    }

    fn ring(&self) {
        self.bell.lock().unwrap().write_all(&[1]).unwrap();
    }

    pub fn say(&mut self, kind: Kind) {
        let mut bytes = bytes::BytesMut::new();
        frame(&mut bytes, |out| v1::ClientMessage { kind: Some(kind) }.encode(out)).unwrap();
        let (written, bell) = self.producer.write(&bytes).unwrap();
        assert_eq!(written, bytes.len());
        if bell == Bell::Ring {
            self.ring();
        }
    }

    async fn hear(&mut self) -> v1::ServerMessage {
        until_async("a message in the ring", async || {
            let frame = self.frames.take().unwrap();
            if frame.is_none() {
                let _ = self.consumer.read(self.frames.buffer()).unwrap();
            }
            frame.map(|frame| v1::ServerMessage::decode(frame).unwrap())
        })
        .await
    }
}

fn receive(side: &UnixStream, expected: u64) -> (OwnedFd, OwnedFd) {
    let mut id = [0; 8];
    let mut control = nix::cmsg_space!([RawFd; 2]);
    let mut bytes = [IoSliceMut::new(&mut id)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(side.as_raw_fd(), &mut bytes, Some(&mut control), flags).unwrap();
    let Some(ControlMessageOwned::ScmRights(fds)) = message.cmsgs().unwrap().next() else {
        panic!("no descriptor came")
    };
    assert_eq!((u64::from_le_bytes(id), fds.len()), (expected, 2));
    // SAFETY: the kernel has just made both descriptors for this process.
    unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) }
}

#[tokio::test]
async fn a_session_goes_on_in_the_ring_and_ends_with_the_stream() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let mut ring = Ring::open(&manager, &mut client).await;
    let device = client.device();
    let create = v1::CreateContext { context: 1000, devices: vec![device] };
    ring.say(Kind::Call(v1::Call { id: 0, method: Some(Method::CreateContext(create)), trace: None }));
    let unknown = v1::CreateUserEvent { event: 1001, context: 1000 };
    ring.say(Kind::Call(v1::Call { id: 7, method: Some(Method::CreateUserEvent(unknown)), trace: None }));
    let Some(server_message::Kind::Reply(reply)) = ring.hear().await.kind else { panic!() };
    assert_eq!((reply.id, reply.status), (7, 0));
    // A session gets no second ring.
    ring.say(Kind::Call(v1::Call {
        id: 8,
        method: Some(Method::OpenRing(v1::OpenRing::default())),
        trace: None,
    }));
    let Some(server_message::Kind::Reply(reply)) = ring.hear().await.kind else { panic!() };
    assert_eq!((reply.id, reply.status), (8, CL_INVALID_OPERATION));
    drop(client);
    manager.has_no_session().await;
}

#[tokio::test]
async fn who_has_no_side_socket_gets_no_ring() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let reply = client.call(Method::OpenRing(v1::OpenRing::default())).await;
    assert_eq!(reply.status, CL_INVALID_OPERATION);
}

#[tokio::test]
async fn a_manager_without_rings_offers_and_gives_none_wherever_its_sessions_live() {
    for isolate in ["protocol", "process"] {
        let manager = Manager::start(&["--command-ring", "off", "--isolate", isolate]);
        let mut client = Client::connect(&manager).await;
        assert_eq!(client.welcome.ring_words, 0, "{isolate}");
        let _side = open_side(&manager, &client);
        let reply = client.call(Method::OpenRing(v1::OpenRing::default())).await;
        assert_eq!(reply.status, CL_INVALID_OPERATION, "{isolate}");
    }
}

#[tokio::test]
async fn a_client_that_scribbles_over_its_ring_ends_its_own_session_only() {
    let mut manager = Manager::start(&[]);
    let mut other = Client::connect(&manager).await;
    let mut others = Ring::open(&manager, &mut other).await;
    for seed in 0u64..8 {
        let mut client = Client::connect(&manager).await;
        let ring = Ring::open(&manager, &mut client).await;
        let size = ring.file.metadata().unwrap().len();
        let mut state = seed + 1;
        let noise: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        ring.file.write_all_at(&noise, 0).unwrap();
        // A manager that has not slept yet may have read the noise already, and closed the bell.
        let _ = ring.bell.lock().unwrap().write_all(&[1]);
        let status = client.end().await.unwrap();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    }
    let unknown = v1::CreateUserEvent { event: 1, context: 12345 };
    others.say(Kind::Call(v1::Call { id: 9, method: Some(Method::CreateUserEvent(unknown)), trace: None }));
    let Some(server_message::Kind::Reply(reply)) = others.hear().await.kind else { panic!() };
    assert_eq!(reply.id, 9);
    assert!(manager.is_running());
}

#[tokio::test]
async fn what_has_ended_is_told_once_by_whichever_thread() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let mut ring = Ring::open(&manager, &mut client).await;
    let device = client.device();
    let mut cast = |method| ring.say(Kind::Call(v1::Call { id: 0, method: Some(method), trace: None }));
    cast(Method::CreateContext(v1::CreateContext { context: 1000, devices: vec![device] }));
    cast(Method::CreateBuffer(v1::CreateBuffer {
        buffer: 1001,
        context: 1000,
        size: 64,
        ..Default::default()
    }));
    for (queue, properties) in [(1002, 0), (1003, CL_QUEUE_PROFILING_ENABLE)] {
        cast(Method::CreateQueue(v1::CreateQueue { queue, context: 1000, device, properties }));
    }
    for event in 2000..2060 {
        let fill = v1::FillBuffer { buffer: 1001, pattern: vec![7].into(), offset: 0, size: 64 };
        let operation = Some(Operation::FillBuffer(fill));
        let queue = 1002 + event % 2;
        let command = v1::Command { event, queue, operation, ..v1::Command::default() };
        ring.say(Kind::Flush(v1::Flush { commands: vec![command] }));
        let Some(server_message::Kind::Completions(told)) = ring.hear().await.kind else { panic!() };
        let told: Vec<_> = told.completions.iter().map(|it| (it.event, it.status)).collect();
        assert_eq!(told, [(event, 0)]);
    }
    let create = v1::CreateUserEvent { event: 3000, context: 1000 };
    ring.say(Kind::Call(v1::Call { id: 7, method: Some(Method::CreateUserEvent(create)), trace: None }));
    let Some(server_message::Kind::Reply(reply)) = ring.hear().await.kind else { panic!("told twice") };
    assert_eq!((reply.id, reply.status), (7, 0));
}

#[tokio::test]
async fn a_client_that_wakes_no_dozing_manager_is_heard_all_the_same_and_holds_no_slot_afterwards() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let Ready { queue, kernel, .. } = client.ready("kernel void nothing() {}", "nothing", 64).await;
    let mut ring = Ring::open_without_waking(&manager, &mut client).await;
    for _ in 0..20 {
        let launch = client.launch(queue, kernel, vec![], 1);
        let event = launch.event;
        ring.say(Kind::Flush(v1::Flush { commands: vec![launch] }));
        let Some(server_message::Kind::Completions(told)) = ring.hear().await.kind else { panic!() };
        let told: Vec<_> = told.completions.iter().map(|it| (it.event, it.status)).collect();
        assert_eq!(told, [(event, 0)]);
    }
    // The client says nothing more.
    manager.counts("fpga_device_manager_slots_in_use 0").await;
    drop(client);
    manager.has_no_session().await;
}

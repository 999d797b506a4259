use super::*;
use fpga_ring::Memory as _;
use nix::sys::socket::{MsgFlags, send};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use tonic::Code;
use v1::client_message::Kind;

/// The client's side of a ring, without a library.
struct Client {
    memory: Arc<RingMemory>,
    producer: Producer<Arc<RingMemory>>,
    consumer: Consumer<Arc<RingMemory>>,
    frames: Frames,
    bell: OwnedFd,
}

/// A stream without messages that ends when notified.
struct Stream(Arc<Notify>);

impl Incoming for Stream {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        self.0.notified().await;
        Ok(None)
    }
}

fn ring() -> (RingSender, WithRing<Stream>, Client, Arc<Notify>) {
    let layout = Layout::new(64).unwrap();
    let (memory, _) = RingMemory::create(&Budget::default(), layout).unwrap();
    let (ours, bell) = bell().unwrap();
    let shared = Shared::new(memory.clone(), layout, ours).unwrap();
    let consumer = Consumer::new(memory.clone(), layout, Direction::ToManager).unwrap();
    let (sender, receiver) = ends(shared, consumer);
    let client = Client {
        producer: Producer::new(memory.clone(), layout, Direction::ToManager).unwrap(),
        consumer: Consumer::new(memory.clone(), layout, Direction::ToClient).unwrap(),
        frames: Frames::new(MAX_MESSAGE_BYTES),
        memory,
        bell,
    };
    let end = Arc::new(Notify::new());
    let mut incoming = WithRing::new(Stream(end.clone()));
    incoming.attach(receiver);
    (sender, incoming, client, end)
}

fn chunk(offset: u64, len: usize) -> v1::Chunk {
    v1::Chunk { transfer: 1, length: u64::MAX, offset, data: vec![offset.to_le_bytes()[0]; len].into() }
}

fn decoded(message: Option<Bytes>) -> Option<v1::ClientMessage> {
    message.map(|message| v1::ClientMessage::decode(message).unwrap())
}

fn framed(message: &v1::ClientMessage) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame(&mut bytes, |out| message.encode(out)).unwrap();
    bytes
}

fn call(id: u64) -> v1::ClientMessage {
    v1::ClientMessage { kind: Some(Kind::Call(v1::Call { id, method: None, trace: None })) }
}

impl Client {
    fn ring(&self) {
        send(self.bell.as_raw_fd(), &[1], MsgFlags::MSG_DONTWAIT).unwrap();
    }

    /// Writes all bytes and waits where there is no room. It needs a thread of its own.
    fn write(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            let (written, bell) = self.producer.write(left).unwrap();
            left = &left[written..];
            if bell == Bell::Ring {
                self.ring();
            }
            std::thread::yield_now();
        }
    }

    fn read(&mut self) -> v1::ServerMessage {
        loop {
            if let Some(frame) = self.frames.take().unwrap() {
                return v1::ServerMessage::decode(frame).unwrap();
            }
            if self.consumer.read(self.frames.buffer()).unwrap() == Bell::Ring {
                self.ring();
            }
            std::thread::yield_now();
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(fpga_test_kit::patience(), future).await.unwrap()
}

#[tokio::test]
async fn messages_larger_than_the_ring_arrive_in_order_and_the_end_comes_last() {
    const MESSAGES: u64 = 30;
    let (_sender, mut incoming, mut client, end) = ring();
    let writer = std::thread::spawn(move || {
        for offset in 0..MESSAGES {
            let len = usize::try_from(offset).unwrap() * 501;
            client.write(&framed(&v1::ClientMessage { kind: Some(Kind::Chunk(chunk(offset, len))) }));
        }
        end.notify_one();
        client
    });
    for offset in 0..MESSAGES {
        let message = decoded(within(incoming.next()).await.unwrap()).unwrap();
        let len = usize::try_from(offset).unwrap() * 501;
        assert_eq!(message.kind, Some(Kind::Chunk(chunk(offset, len))));
    }
    assert_eq!(within(incoming.next()).await.unwrap(), None);
    drop(writer.join().unwrap());
}

#[tokio::test]
async fn sending_never_waits_for_a_client_that_does_not_read_and_all_of_it_arrives() {
    const MESSAGES: u64 = 40;
    let (sender, mut incoming, mut client, end) = ring();
    let message =
        |offset| v1::ServerMessage { kind: Some(v1::server_message::Kind::Chunk(chunk(offset, 1000))) };
    let budget = Budget::default();
    for offset in 0..MESSAGES {
        sender.send(&message(offset), Some(Arc::new(budget.hold(1000))));
    }
    assert!(budget.held() >= 1000 * (MESSAGES - 1), "what waits is on the account");
    let reader = std::thread::spawn(move || {
        for offset in 0..MESSAGES {
            assert_eq!(client.read(), message(offset));
        }
        end.notify_one();
        client
    });
    // The thread of the session continues meanwhile.
    assert_eq!(within(incoming.next()).await.unwrap(), None);
    drop(reader.join().unwrap());
    assert_eq!(budget.held(), 0);
}

#[tokio::test]
async fn a_client_that_lies_ends_its_session_and_nothing_else() {
    let nonsense: [fn(&mut Client); 3] = [
        // A position that no reader or writer can have.
        |client| client.memory.words()[0].store(u64::MAX, Ordering::Relaxed),
        // One word more in front of the read position than the ring has.
        |client| client.memory.words()[0].store(2 + 65, Ordering::Relaxed),
        // A length that no message may have.
        |client| client.write(&u64::MAX.to_le_bytes()),
    ];
    for (number, lie) in nonsense.into_iter().enumerate() {
        let (_sender, mut incoming, mut client, _end) = ring();
        client.write(&framed(&call(7)));
        assert_eq!(decoded(within(incoming.next()).await.unwrap()), Some(call(7)));
        lie(&mut client);
        client.ring();
        let status = within(incoming.next()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{number}");
    }
}

#[tokio::test]
async fn a_reader_position_that_lies_is_found_out_when_something_is_sent() {
    let (sender, mut incoming, client, _end) = ring();
    // The second cache line of the second half: the client's read position.
    let tail = Layout::new(64).unwrap().words() / 2 + 8;
    client.memory.words()[tail].store(12345, Ordering::Relaxed);
    sender.send(&v1::ServerMessage::default(), None);
    client.ring();
    assert_eq!(within(incoming.next()).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn nothing_is_kept_for_a_client_that_has_closed_the_bell() {
    let (sender, mut incoming, client, end) = ring();
    let budget = Budget::default();
    let message = v1::ServerMessage { kind: Some(v1::server_message::Kind::Chunk(chunk(0, 4000))) };
    sender.send(&message, Some(Arc::new(budget.hold(4000))));
    assert_eq!(budget.held(), 4000);
    drop(client.bell);
    let freed = async {
        while budget.held() > 0 {
            tokio::task::yield_now().await;
        }
    };
    within(async {
        tokio::select! {
            () = freed => {}
            _ = incoming.next() => {}
        }
    })
    .await;
    sender.send(&message, Some(Arc::new(budget.hold(4000))));
    assert_eq!(budget.held(), 0);
    end.notify_one();
    assert_eq!(within(incoming.next()).await.unwrap(), None);
}

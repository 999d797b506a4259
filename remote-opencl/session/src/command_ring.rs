//! The command ring of a session: the session's messages in shared memory instead of the gRPC stream, which
//! stays open.
//!
//! The messages are the same, one per frame, and are copied out of the ring before they are decoded. Each
//! process wakes the other only if the other sleeps: by a byte on a socket, the *bell*, or, while the other dozes, on
//! a word of the ring. The bell is a socket because nothing that a client does to its end can make the manager's end
//! block. A client that writes
//! invalid data ends its own session, as on the stream.

use crate::doze::Doze;
use crate::flow::Flow;
use crate::governor::{Budget, Hold};
use crate::incoming::Incoming;
use crate::segments::{CreateError, FdChannel, RingMemory};
use bytes::{Bytes, BytesMut};
use fpga_net::doorbell::Doorbell;
use fpga_net::futex;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::segments::RING_WORDS;
use fpga_protocol::v1;
use fpga_ring::{
    Bell, Broken, Consumer, Direction, Frames, Layout, LayoutError, Look, Producer, Readiness, TooLong, frame,
};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use parking_lot::Mutex;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::Status;

/// Most messages that are taken from the ring before other tasks of the thread get a turn.
const MAX_IN_A_ROW: u32 = 64;

/// The reason why a ring can't be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The size is invalid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There is no memory for the ring.
    #[error(transparent)]
    Memory(#[from] CreateError),
    /// A system call failed.
    #[error("the system gives no command ring: {0}")]
    System(#[from] io::Error),
}

/// A breach of the ring's rules, which ends the session.
#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// The sending side. Clones send to the same ring.
#[derive(Debug, Clone)]
pub struct RingSender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sending: Mutex<Sending>,
    /// The messages that wait for room in the ring.
    flow: Flow,
    bell: Doorbell,
    memory: Arc<RingMemory>,
    layout: Layout,
    /// Notified when the receiving side has something to look at.
    rung: Notify,
}

#[derive(Debug)]
struct Sending {
    producer: Producer<Arc<RingMemory>>,
    /// Messages for which the ring had no room.
    waiting: VecDeque<Waiting>,
    state: State,
}

/// The state of the ring, as the client's writes show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Sound,
    Broken,
    /// The client has closed the bell.
    Closed,
}

#[derive(Debug)]
struct Waiting {
    bytes: BytesMut,
    written: usize,
    _hold: Option<Arc<Hold>>,
}

/// The receiving side.
#[derive(Debug)]
pub struct RingReceiver {
    consumer: Consumer<Arc<RingMemory>>,
    frames: Frames,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
    in_a_row: u32,
}

/// A client's messages: from the stream, and from a ring once there is one. Only the stream ends the
/// sequence.
#[derive(Debug)]
pub struct WithRing<I> {
    stream: I,
    ring: Option<RingReceiver>,
    /// The end of the stream, kept until the messages in the ring have been taken.
    ended: Option<Result<Option<Bytes>, Status>>,
}

/// Whether a process offers rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum CommandRing {
    /// Rings are offered to clients that share memory with the process.
    Auto,
    /// No rings are offered.
    Off,
}

static SAID: OnceLock<CommandRing> = OnceLock::new();

impl CommandRing {
    /// Sets what this process does. It is called once, at the start.
    pub fn set(self) {
        // A second call changes nothing.
        let _ = SAID.set(self);
    }
}

/// Whether this process offers rings.
#[must_use]
pub fn is_wanted() -> bool {
    SAID.get() != Some(&CommandRing::Off)
}

/// Makes a ring, passes it to the client as the answer to `call`, and listens to its bell, on the session's
/// thread.
///
/// # Errors
/// [`OpenError`]; nothing has been passed then.
pub fn open(budget: &Budget, side: &FdChannel, call: u64) -> Result<(RingSender, RingReceiver), OpenError> {
    let layout = Layout::new(usize::try_from(RING_WORDS).unwrap_or(usize::MAX))?;
    let (memory, fd) = RingMemory::create(budget, layout)?;
    let (ours, theirs) = bell().map_err(io::Error::from)?;
    let shared = Shared::new(memory.clone(), layout, ours)?;
    let consumer = Consumer::new(memory, layout, Direction::ToManager)?;
    // Passing comes last of all that can fail: a ring that was passed is in use.
    side.pass_ring(call, &fd, &theirs)?;
    Ok(ends(shared, consumer))
}

fn bell() -> nix::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags)
}

/// Makes both sides, and starts the task that listens to the bell.
fn ends(shared: Shared, consumer: Consumer<Arc<RingMemory>>) -> (RingSender, RingReceiver) {
    let shared = Arc::new(shared);
    let listening = tokio::spawn(listen(shared.clone()));
    let frames = Frames::new(MAX_MESSAGE_BYTES);
    let receiver = RingReceiver { consumer, frames, shared: shared.clone(), listening, in_a_row: 0 };
    (RingSender(shared), receiver)
}

/// On each ring of the bell, sends waiting messages and wakes the receiver, until the client closes the bell.
async fn listen(shared: Arc<Shared>) {
    loop {
        let open = shared.bell.rung().await.is_ok();
        shared.pump();
        if !open {
            let mut sending = shared.sending.lock();
            sending.waiting.clear();
            sending.state = State::Closed;
        }
        shared.rung.notify_one();
        if !open {
            return;
        }
    }
}

impl Shared {
    fn new(memory: Arc<RingMemory>, layout: Layout, bell: OwnedFd) -> Result<Self, OpenError> {
        let producer = Producer::new(memory.clone(), layout, Direction::ToClient)?;
        let sending = Sending { producer, waiting: VecDeque::new(), state: State::Sound };
        let flow = Flow::default();
        let (sending, bell) = (Mutex::new(sending), Doorbell::new(bell)?);
        Ok(Self { sending, flow, bell, memory, layout, rung: Notify::new() })
    }

    /// Sends waiting messages as far as there is room.
    fn pump(&self) {
        let bell = self.sending.lock().pump(&self.flow);
        self.wake_client(bell);
    }

    fn wake_client(&self, bell: Bell) {
        match bell {
            Bell::Ring => self.bell.ring(),
            Bell::Wake => futex::wake_all(self.layout.reader_flag(&self.memory, Direction::ToClient)),
            Bell::Silent => {}
        }
    }
}

impl Sending {
    fn pump(&mut self, flow: &Flow) -> Bell {
        let mut bell = Bell::Silent;
        if self.state == State::Sound && self.write(&mut bell, flow).is_err() {
            self.state = State::Broken;
        }
        if self.state != State::Sound {
            // Nobody will read the messages. The receiving side learns it from the end of the bell.
            self.waiting.clear();
        }
        bell
    }

    fn write(&mut self, bell: &mut Bell, flow: &Flow) -> Result<(), Broken> {
        while let Some(first) = self.waiting.front_mut() {
            let (written, ring) = self.producer.write(&first.bytes[first.written..])?;
            first.written += written;
            if ring != Bell::Silent {
                *bell = ring;
            }
            if first.written == first.bytes.len() {
                self.waiting.pop_front();
                flow.taken();
            } else if self.producer.wait_for_room()? == Readiness::Waiting {
                break;
            }
        }
        Ok(())
    }
}

impl RingSender {
    /// Sends a message, now or when there is room; `hold` is kept until then. May be called from any thread
    /// and never blocks.
    pub fn send(&self, message: &v1::ServerMessage, hold: Option<Arc<Hold>>) {
        let mut bytes = BytesMut::with_capacity(message.encoded_len() + 2 * size_of::<u64>());
        if let Err(error) = frame(&mut bytes, |out| message.encode(out)) {
            tracing::error!(%error, "A message can't be encoded: its session ends");
            self.0.sending.lock().state = State::Broken;
            self.0.rung.notify_one();
            return;
        }
        self.0.flow.put();
        let bell = {
            let mut sending = self.0.sending.lock();
            sending.waiting.push_back(Waiting { bytes, written: 0, _hold: hold });
            if sending.waiting.len() == 1 { sending.pump(&self.0.flow) } else { Bell::Silent }
        };
        self.0.wake_client(bell);
    }
}

impl RingReceiver {
    /// Lets the session's thread doze on this ring.
    pub fn doze_by(&self, doze: &Doze) {
        doze.on(self.shared.memory.clone(), self.shared.layout);
    }

    /// The next message that has arrived, encoded, in memory of its own.
    fn take(&mut self) -> Result<Option<Bytes>, Violation> {
        if let Some(frame) = self.frames.take()? {
            return Ok(Some(frame));
        }
        if self.consumer.read(self.frames.buffer())? == Bell::Ring {
            self.shared.bell.ring();
        }
        Ok(self.frames.take()?)
    }

    fn take_or_wait(&mut self) -> Result<(Option<Bytes>, Readiness), Violation> {
        if let Some(message) = self.take()? {
            return Ok((Some(message), Readiness::Ready));
        }
        if self.shared.sending.lock().state == State::Broken {
            return Err(Broken.into());
        }
        Ok((None, self.consumer.wait()?))
    }
}

impl Drop for RingReceiver {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl RingSender {
    /// Counts of the messages that were sent and that the client has taken.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.0.flow
    }
}

impl<I> WithRing<I> {
    /// Reads from the stream alone.
    pub fn new(stream: I) -> Self {
        Self { stream, ring: None, ended: None }
    }

    /// Reads messages from this ring too, from now on.
    pub fn attach(&mut self, ring: RingReceiver) {
        self.ring = Some(ring);
    }

    /// Dozes on the ring, if there is one (see [`Doze::sleep`]).
    ///
    /// # Errors
    /// [`Broken`] if the client's position is impossible.
    pub fn doze(&mut self, doze: &Doze, look: Look) -> Result<(), Broken> {
        self.ring.as_mut().map_or(Ok(()), |ring| doze.sleep(look, &mut ring.consumer))
    }
}

impl<I: Incoming> Incoming for WithRing<I> {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let Some(ring) = &mut self.ring else { return self.stream.next().await };
            if ring.in_a_row >= MAX_IN_A_ROW {
                ring.in_a_row = 0;
                tokio::task::yield_now().await;
            }
            let taken = ring.take_or_wait();
            match taken.map_err(|violation| Status::invalid_argument(violation.to_string()))? {
                (Some(message), _) => {
                    ring.in_a_row += 1;
                    return Ok(Some(message));
                }
                (None, Readiness::Ready) => continue,
                (None, Readiness::Waiting) => ring.in_a_row = 0,
            }
            if let Some(ended) = self.ended.take() {
                return ended;
            }
            tokio::select! {
                biased;
                () = ring.shared.rung.notified() => {}
                message = self.stream.next() => match message {
                    Ok(Some(message)) => return Ok(Some(message)),
                    // The messages that the client sent before the end come first.
                    ended => self.ended = Some(ended),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! The command ring of a session: messages travel in memory shared with a manager on the same node instead of on
//! the gRPC stream. The stream stays open, and its end is the end of the session.
//!
//! The thread that enqueues writes its messages into the ring; the thread that waits takes the messages that came.
//! An end that sleeps is woken by a byte on a socket, the *bell*. A thread that waits for an answer first *dozes* for
//! a short time: it sleeps on a word of the ring, and needs no other system call. Without a ring (TCP, no shared memory,
//! `FPGA_COMMAND_RING=off`) all messages travel on the stream.

use crate::base::sync::lock;
use crate::memory::fd_channel::FdChannel;
use crate::memory::ring_memory::RingMemory;
use crate::wire::codec::encode;
use crate::wire::outgoing::Outgoing;
use crate::wire::socket::Doorbell;
use bytes::{Buf as _, BytesMut};
use fpga_foreign_process::generation;
use fpga_net::futex;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::segments::RING_VARIABLE;
use fpga_protocol::v1;
use fpga_ring::{
    Bell, Broken, Consumer, Direction, Doze, Dozers, Frames, Layout, Look, Producer, Readiness, TooLong,
    frame,
};
use prost::Message as _;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::Wake;
use std::time::Duration;

/// Encoded bytes that are collected before they are written to the ring.
const GATHERED_BYTES: usize = 64 * 1024;

/// The sending end, used by the outbox.
#[derive(Debug)]
pub(crate) struct RingWriter {
    generation: u64,
    producer: Producer<Arc<RingMemory>>,
    /// Encoded bytes that are not in the ring yet.
    encoded: BytesMut,
    bell: Arc<Doorbell>,
    memory: Arc<RingMemory>,
    layout: Layout,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct RingReader {
    generation: u64,
    receiving: Mutex<Receiving>,
    bell: Arc<Doorbell>,
    memory: Arc<RingMemory>,
    layout: Layout,
    dozers: Dozers<AtomicU64>,
    manager: Futex,
}

/// The holder of this value's lock takes messages, in order.
#[derive(Debug)]
pub(crate) struct Receiving {
    consumer: Consumer<Arc<RingMemory>>,
    frames: Frames,
    /// Number of threads that doze or are about to.
    dozing: usize,
}

/// Whether a manager wakes threads that doze. Managers before version 0.2 don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Futex {
    Known,
    Unknown,
}

/// A thread that dozes, until [`Dozing::end`].
#[derive(Debug)]
pub(crate) struct Dozing<'a>(&'a RingReader);

/// A reason why no more messages can be sent.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("a message can't be encoded: {0}")]
    Unencodable(#[from] prost::EncodeError),
}

/// An error of the ring that ends the session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("a frame of the command ring is no message: {0}")]
    Undecodable(#[from] prost::DecodeError),
    #[error("the bell: {0}")]
    Io(#[from] io::Error),
}

/// Whether the environment allows a ring.
pub(crate) fn is_enabled() -> bool {
    std::env::var_os(RING_VARIABLE).is_none_or(|value| value != "off")
}

/// Opens the ring that the manager passed in answer to `call`, with `words` words in each direction. Must be called
/// inside the driver's runtime.
pub(crate) fn open(
    fd_channel: &FdChannel,
    call: u64,
    words: u32,
    manager: Futex,
) -> io::Result<(RingWriter, Arc<RingReader>)> {
    let layout = Layout::new(usize::try_from(words).map_err(io::Error::other)?).map_err(io::Error::other)?;
    let (memory, bell) = fd_channel.receive_ring(call)?;
    let memory = Arc::new(RingMemory::new(&memory, layout)?);
    let bell = Arc::new(Doorbell::new(bell)?);
    let generation = generation();
    let producer =
        Producer::new(Arc::clone(&memory), layout, Direction::ToManager).map_err(io::Error::other)?;
    let consumer =
        Consumer::new(Arc::clone(&memory), layout, Direction::ToClient).map_err(io::Error::other)?;
    let receiving = Mutex::new(Receiving { consumer, frames: Frames::new(MAX_MESSAGE_BYTES), dozing: 0 });
    let reader = RingReader {
        generation,
        receiving,
        bell: Arc::clone(&bell),
        memory: Arc::clone(&memory),
        layout,
        dozers: Dozers::default(),
        manager,
    };
    let writer = RingWriter { generation, producer, encoded: BytesMut::new(), bell, memory, layout };
    Ok((writer, Arc::new(reader)))
}

impl RingWriter {
    /// Writes the encoded bytes, and then messages from `next`, as far as there is room.
    pub(crate) fn send(&mut self, mut next: impl FnMut() -> Option<Outgoing>) {
        // A forked child has its parent's memory, but not its session.
        if self.generation != generation() {
            return;
        }
        let mut bell = Bell::Silent;
        let sent = self.write(&mut next, &mut bell);
        match bell {
            Bell::Ring => self.bell.ring(),
            Bell::Wake => futex::wake_all(self.layout.reader_flag(&self.memory, Direction::ToManager)),
            Bell::Silent => {}
        }
        if let Err(error) = sent {
            tracing::warn!(%error, "A session's messages can't be sent");
            // Closing the bell ends the reader, which then ends the session and so fails all commands.
            self.encoded.clear();
            self.bell.close();
        }
    }

    fn write(
        &mut self,
        next: &mut impl FnMut() -> Option<Outgoing>,
        bell: &mut Bell,
    ) -> Result<(), SendError> {
        loop {
            while self.encoded.len() < GATHERED_BYTES
                && let Some(outgoing) = next()
            {
                frame(&mut self.encoded, |out| encode(outgoing, out))?;
            }
            if self.encoded.is_empty() {
                return Ok(());
            }
            let (written, ring) = self.producer.write(&self.encoded)?;
            if written == self.encoded.len() {
                // The next frames get the whole buffer again, without a search for room.
                self.encoded.clear();
            } else {
                self.encoded.advance(written);
            }
            if ring != Bell::Silent {
                *bell = ring;
            }
            if !self.encoded.is_empty() && self.producer.wait_for_room()? == Readiness::Waiting {
                return Ok(());
            }
        }
    }

    /// Whether all messages taken by [`Self::send`] are in the ring.
    pub(crate) fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }
}

impl RingReader {
    /// Waits until the manager has rung. There may then be messages, or room.
    pub(crate) async fn rung(&self) -> Result<(), RingError> {
        if lock(&self.receiving).consumer.wait()? == Readiness::Ready {
            return Ok(());
        }
        Ok(self.bell.rung().await?)
    }

    /// The lock for taking messages; `None` if another thread holds it, since that thread takes all messages, or in
    /// a forked child.
    pub(crate) fn try_receive(&self) -> Option<MutexGuard<'_, Receiving>> {
        if self.generation != generation() {
            return None;
        }
        match self.receiving.try_lock() {
            Ok(receiving) => Some(receiving),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The word on which threads of this side sleep when they doze.
    fn flag(&self) -> &AtomicU64 {
        self.layout.reader_flag(&self.memory, Direction::ToClient)
    }

    /// Makes the calling thread one that dozes; `None` if the manager can't wake it.
    pub(crate) fn doze(&self) -> Option<Dozing<'_>> {
        if self.manager == Futex::Unknown || self.generation != generation() {
            return None;
        }
        self.receive().dozing += 1;
        Some(Dozing(self))
    }

    /// The lock for taking messages; waits for a thread that holds it.
    pub(crate) fn receive(&self) -> MutexGuard<'_, Receiving> {
        lock(&self.receiving)
    }
}

impl Dozing<'_> {
    /// The moment now, before the thread looks for what it waits for.
    pub(crate) fn look(&self) -> Look {
        self.0.dozers.look()
    }

    /// Sleeps until there may be messages, until [`RingReader::wake`] is called, or for `longest`. Returns at once if
    /// one of them happened since `look`.
    pub(crate) fn sleep(&self, look: Look, longest: Duration) -> Result<(), Broken> {
        let ring = self.0;
        // A statement of its own: the lock is free while the thread sleeps.
        let doze = ring.receive().consumer.doze()?;
        if let Doze::While(ticket) = doze {
            ring.dozers.sleep(look, || futex::sleep(ring.flag(), ticket, longest));
        }
        Ok(())
    }

    /// The thread dozes no longer. Returns whether there may be messages for which the manager woke nobody.
    pub(crate) fn end(self) -> Readiness {
        let mut receiving = self.0.receive();
        receiving.dozing -= 1;
        if receiving.dozing > 0 {
            return Readiness::Waiting;
        }
        // The next look at the ring finds an error again.
        receiving.consumer.end_doze().unwrap_or(Readiness::Ready)
    }
}

impl Wake for RingReader {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Wakes all threads that doze.
    fn wake_by_ref(self: &Arc<Self>) {
        self.dozers.wake(self.flag(), || futex::wake_all(self.flag()));
    }
}

impl Receiving {
    /// Tells the manager that it need not ring.
    pub(crate) fn stay_awake(&mut self) {
        self.consumer.stay_awake();
    }

    /// Tells the manager to ring for the next message, unless one has come already.
    pub(crate) fn wait(&mut self) -> Result<Readiness, Broken> {
        self.consumer.wait()
    }

    /// The next message, if one has come. Rings if the manager waits for the freed room.
    pub(crate) fn take(&mut self, reader: &RingReader) -> Result<Option<v1::ServerMessage>, RingError> {
        let frame = match self.frames.take()? {
            Some(frame) => Some(frame),
            None => {
                if self.consumer.read(self.frames.buffer())? == Bell::Ring {
                    reader.bell.ring();
                }
                self.frames.take()?
            }
        };
        Ok(frame.map(v1::ServerMessage::decode).transpose()?)
    }
}

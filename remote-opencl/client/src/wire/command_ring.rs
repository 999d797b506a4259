//! The command ring of a session: messages travel in memory shared with a manager on the same node instead of on
//! the gRPC stream. The stream stays open, and its end is the end of the session.
//!
//! The thread that enqueues writes its messages into the ring; the thread that waits takes the messages that came.
//! An end that sleeps is woken by a byte on a socket, the *bell*. Without a ring (TCP, no shared memory,
//! `FPGA_COMMAND_RING=off`) all messages travel on the stream.

use crate::base::sync::lock;
use crate::memory::fd_channel::FdChannel;
use crate::memory::ring_memory::RingMemory;
use crate::wire::codec::encode;
use crate::wire::outgoing::Outgoing;
use crate::wire::socket::Doorbell;
use bytes::{Buf as _, BytesMut};
use fpga_foreign_process::generation;
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::segments::RING_VARIABLE;
use fpga_protocol::v1;
use fpga_ring::{Bell, Broken, Consumer, Direction, Frames, Layout, Producer, Readiness, TooLong, frame};
use prost::Message as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

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
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct RingReader {
    generation: u64,
    receiving: Mutex<Receiving>,
    bell: Arc<Doorbell>,
}

/// The holder of this value's lock takes messages, in order.
#[derive(Debug)]
pub(crate) struct Receiving {
    consumer: Consumer<Arc<RingMemory>>,
    frames: Frames,
}

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
) -> io::Result<(RingWriter, Arc<RingReader>)> {
    let layout = Layout::new(usize::try_from(words).map_err(io::Error::other)?).map_err(io::Error::other)?;
    let (memory, bell) = fd_channel.receive_ring(call)?;
    let memory = Arc::new(RingMemory::new(&memory, layout)?);
    let bell = Arc::new(Doorbell::new(bell)?);
    let generation = generation();
    let producer =
        Producer::new(Arc::clone(&memory), layout, Direction::ToManager).map_err(io::Error::other)?;
    let consumer = Consumer::new(memory, layout, Direction::ToClient).map_err(io::Error::other)?;
    let receiving = Mutex::new(Receiving { consumer, frames: Frames::new(MAX_MESSAGE_BYTES) });
    let writer = RingWriter { generation, producer, encoded: BytesMut::new(), bell: Arc::clone(&bell) };
    Ok((writer, Arc::new(RingReader { generation, receiving, bell })))
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
        if bell == Bell::Ring {
            self.bell.ring();
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
            self.encoded.advance(written);
            if ring == Bell::Ring {
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

    /// The lock for taking messages; waits for a thread that holds it.
    pub(crate) fn receive(&self) -> MutexGuard<'_, Receiving> {
        lock(&self.receiving)
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

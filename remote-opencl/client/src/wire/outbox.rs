//! The messages and uploads that wait to be sent to a manager.

use crate::base::sync::lock;
use crate::wire::command_ring::RingWriter;
use crate::wire::outgoing::{Outgoing, Upload, UploadChunk};
use crate::wire::replay_buffer::{ReplayBuffer, WrongCount};
use fpga_protocol::v1;
use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Size of a sent chunk in bytes. Below the limit of the protocol, so that copies of it stay in the cache.
pub(crate) const CHUNK_BYTES: u64 = 256 * 1024;

/// Entries that may wait to be sent before a thread that enqueues has to wait (bounded queues, T-5). A batch has up
/// to 1 MiB.
const MAX_ENTRIES: usize = 64;

/// The queue of a session's outgoing messages.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    waker: Option<Waker>,
    waiting_for_room: Vec<Waker>,
    /// The ring, if there is one, which then takes all messages instead of the stream.
    ring: Option<RingWriter>,
    closed: bool,
    /// `connection` is the connection that sends, `last_connection` the newest one, and `waiting_to_send` the waker
    /// of a newer connection that may not send yet.
    connection: u64,
    last_connection: u64,
    waiting_to_send: Option<Waker>,
    /// The replay buffer, if the session can be resumed.
    replay: Option<ReplayBuffer>,
}

#[derive(Debug)]
enum Entry {
    Message(v1::ClientMessage),
    Upload { upload: Arc<Upload>, sent: u64 },
}

impl Outbox {
    /// Appends a message. [`Self::wake`] makes it be sent.
    pub(crate) fn push(&self, kind: v1::client_message::Kind) {
        self.append(Entry::Message(v1::ClientMessage { kind: Some(kind) }));
    }

    /// Appends an upload, which is sent in chunks.
    pub(crate) fn push_upload(&self, upload: Arc<Upload>) {
        self.append(Entry::Upload { upload, sent: 0 });
    }

    fn append(&self, entry: Entry) {
        let mut inner = lock(&self.0);
        if !inner.closed {
            inner.entries.push_back(entry);
        }
    }

    /// Makes all later messages travel in the ring. The stream stays open but sends nothing more.
    pub(crate) fn use_ring(&self, ring: RingWriter) {
        lock(&self.0).ring = Some(ring);
    }

    /// Whether nothing is left for the thread that drives to send.
    pub(crate) fn is_sent(&self) -> bool {
        let inner = lock(&self.0);
        inner.entries.is_empty() && inner.ring.as_ref().is_none_or(RingWriter::is_empty)
    }

    /// Sends messages over the ring, as far as there is room. Without a ring it wakes the stream, which is cheapest
    /// on the thread that drives.
    pub(crate) fn wake(&self) {
        let waker = {
            let mut inner = lock(&self.0);
            if inner.ring.is_some() && !inner.closed {
                return inner.send_over_ring();
            }
            let has_ack = inner.replay.as_ref().is_some_and(ReplayBuffer::has_ack_to_send);
            if inner.entries.is_empty() && !inner.closed && !has_ack {
                return;
            }
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Makes the session resumable: from now on the replay buffer keeps sent messages until the manager acknowledges
    /// them.
    pub(crate) fn enable_replay(&self) {
        lock(&self.0).replay = Some(ReplayBuffer::default());
    }

    /// Has an acknowledgement of `received` messages sent by [`Self::wake`].
    pub(crate) fn send_ack(&self, received: u64) {
        if let Some(replay) = &mut lock(&self.0).replay {
            replay.send_ack(received);
        }
    }

    /// Drops the first `received` messages from the replay buffer: the manager has acknowledged them.
    pub(crate) fn acknowledged(&self, received: u64) -> Result<(), WrongCount> {
        lock(&self.0).replay.as_mut().map_or(Ok(()), |replay| replay.acknowledged(received))
    }

    /// The stream of another connection. It sends `first`; after [`Self::start_sending`], the messages that the manager
    /// lacks and new ones.
    pub(crate) fn connection(self: &Arc<Self>, first: v1::ClientMessage) -> OutboxStream {
        let mut inner = lock(&self.0);
        inner.last_connection += 1;
        let connection = inner.last_connection;
        drop(inner);
        OutboxStream { outbox: Arc::clone(self), connection, first: Some(first) }
    }

    /// Lets the newest connection send. The manager has the first `received` messages.
    pub(crate) fn start_sending(&self, received: u64) -> Result<(), WrongCount> {
        let mut inner = lock(&self.0);
        if let Some(replay) = &mut inner.replay {
            replay.acknowledged(received)?;
            replay.rewind();
        }
        inner.connection = inner.last_connection;
        let wakers = [inner.waker.take(), inner.waiting_to_send.take()];
        drop(inner);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
        Ok(())
    }

    /// Whether a command may be enqueued without waiting.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.0).has_room()
    }

    /// Ready if [`Self::has_room`].
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = lock(&self.0);
        if inner.has_room() {
            return Poll::Ready(());
        }
        if !inner.waiting_for_room.iter().any(|waker| waker.will_wake(cx.waker())) {
            inner.waiting_for_room.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Ends the stream. Messages in it are dropped, and sources of uploads are not read any more.
    pub(crate) fn close(&self) {
        let (entries, mut waiting) = {
            let mut inner = lock(&self.0);
            inner.closed = true;
            (std::mem::take(&mut inner.entries), std::mem::take(&mut inner.waiting_for_room))
        };
        waiting.extend(lock(&self.0).waiting_to_send.take());
        for waker in waiting {
            waker.wake();
        }
        for entry in &entries {
            if let Entry::Upload { upload, .. } = entry {
                upload.give_up();
            }
        }
        self.wake();
    }
}

impl Inner {
    fn send_over_ring(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        ring.send(|| self.next());
        self.ring = Some(ring);
    }

    fn next(&mut self) -> Option<Outgoing> {
        let outgoing = match self.entries.front_mut()? {
            Entry::Upload { upload, sent } => {
                let offset = *sent;
                let len = CHUNK_BYTES.min(upload.length - offset);
                let chunk = UploadChunk { upload: Arc::clone(upload), offset, len };
                *sent += len;
                if *sent == upload.length {
                    self.entries.pop_front();
                }
                Outgoing::Chunk(chunk)
            }
            Entry::Message(message) => {
                let message = std::mem::take(message);
                self.entries.pop_front();
                self.wake_waiting();
                Outgoing::Message(message)
            }
        };
        Some(outgoing)
    }

    fn has_room(&self) -> bool {
        self.closed || self.entries.len() < MAX_ENTRIES
    }

    /// Wakes the threads that wait for room once more than half of the entries are free, so that they aren't woken
    /// for every message.
    fn wake_waiting(&mut self) {
        if self.entries.len() < MAX_ENTRIES / 2 {
            for waker in self.waiting_for_room.drain(..) {
                waker.wake();
            }
        }
    }
}

/// The messages that one connection sends.
#[derive(Debug)]
pub(crate) struct OutboxStream {
    outbox: Arc<Outbox>,
    connection: u64,
    first: Option<v1::ClientMessage>,
}

impl Stream for OutboxStream {
    type Item = Outgoing;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Outgoing>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Outgoing::Message(first)));
        }
        let mut inner = lock(&self.outbox.0);
        if inner.closed || self.connection < inner.connection {
            return Poll::Ready(None);
        }
        if self.connection > inner.connection {
            inner.waiting_to_send = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(again) = inner.replay.as_mut().and_then(ReplayBuffer::next) {
            return Poll::Ready(Some(again));
        }
        // With a ring the stream sends nothing; polling it only detects the close.
        let next = if inner.ring.is_none() { inner.next() } else { None };
        match next {
            Some(outgoing) => {
                if let Some(replay) = &mut inner.replay {
                    replay.sent(&outgoing);
                }
                Poll::Ready(Some(outgoing))
            }
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests;

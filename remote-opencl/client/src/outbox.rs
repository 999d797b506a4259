//! What waits to be sent to a manager: messages, and the bytes of large writes, which are read when they are sent.

use crate::command_ring::RingWriter;
use crate::host_memory::HostSource;
use crate::kept::{Kept, WrongCount};
use crate::sync::lock;
use fpga_protocol::v1;
use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Bytes of one chunk that is sent: they pass through two caches' worth of copies, so smaller than the limit.
pub(crate) const CHUNK_BYTES: u64 = 256 * 1024;

/// Entries that may wait to be sent before whoever enqueues more has to wait (bounded queues, T-5): a batch is 1 MiB.
const MAX_ENTRIES: usize = 64;

/// One message on its way out.
#[derive(Debug, Clone)]
pub(crate) enum Outgoing {
    /// A message as it is.
    Message(v1::ClientMessage),
    /// One chunk of an upload, whose bytes are read when it is encoded.
    Chunk(UploadChunk),
}

/// A part of an upload.
#[derive(Debug, Clone)]
pub(crate) struct UploadChunk {
    pub(crate) upload: Arc<Upload>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A transfer to the manager.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Id of the transfer.
    pub(crate) transfer: u64,
    /// Its length.
    pub(crate) length: u64,
    source: Mutex<Option<HostSource>>,
}

/// The queue of a session's outgoing messages.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    waker: Option<Waker>,
    waiting_for_room: Vec<Waker>,
    /// What takes all messages, once there is one; without it the stream does.
    ring: Option<RingWriter>,
    closed: bool,
    /// The connection that sends, the last one that was begun, and who waits for being the one that sends.
    connection: u64,
    last_connection: u64,
    waiting_to_send: Option<Waker>,
    /// What was sent and the manager may lack, where the session can be resumed.
    kept: Option<Kept>,
}

#[derive(Debug)]
enum Entry {
    Message(v1::ClientMessage),
    Upload { upload: Arc<Upload>, sent: u64 },
}

impl Upload {
    pub(crate) fn new(transfer: u64, source: HostSource) -> Self {
        Self { transfer, length: source.len() as u64, source: Mutex::new(Some(source)) }
    }

    /// Lets `use_source` read the source; zeroes are sent instead when the upload was given up.
    pub(crate) fn with_source<T>(&self, use_source: impl FnOnce(Option<&HostSource>) -> T) -> T {
        use_source(lock(&self.source).as_ref())
    }

    /// After this the source's memory is never read again.
    pub(crate) fn give_up(&self) {
        *lock(&self.source) = None;
    }
}

impl Outbox {
    /// Appends a message; [`Self::wake`] gets it sent.
    pub(crate) fn push(&self, kind: v1::client_message::Kind) {
        self.append(Entry::Message(v1::ClientMessage { kind: Some(kind) }));
    }

    /// Appends all chunks of an upload.
    pub(crate) fn push_upload(&self, upload: Arc<Upload>) {
        self.append(Entry::Upload { upload, sent: 0 });
    }

    fn append(&self, entry: Entry) {
        let mut inner = lock(&self.0);
        if !inner.closed {
            inner.entries.push_back(entry);
        }
    }

    /// From now on messages travel in a ring; the stream, through which nothing more is sent, stays.
    pub(crate) fn over(&self, ring: RingWriter) {
        lock(&self.0).ring = Some(ring);
    }

    /// Whether nothing waits for the thread that drives to send it.
    pub(crate) fn is_sent(&self) -> bool {
        let inner = lock(&self.0);
        inner.entries.is_empty() && inner.ring.as_ref().is_none_or(RingWriter::is_empty)
    }

    /// Sends what there is over the ring, as far as it has room; else tells whoever sends that there is something, which
    /// is cheapest on the thread that drives.
    pub(crate) fn wake(&self) {
        let waker = {
            let mut inner = lock(&self.0);
            if inner.ring.is_some() && !inner.closed {
                return inner.send_over_ring();
            }
            let to_acknowledge = inner.kept.as_ref().is_some_and(Kept::has_to_acknowledge);
            if inner.entries.is_empty() && !inner.closed && !to_acknowledge {
                return;
            }
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Keeps what is sent from now on until [`Self::manager_has`] says that it came: the session can be resumed.
    pub(crate) fn keep_what_is_sent(&self) {
        lock(&self.0).kept = Some(Kept::default());
    }

    /// The manager is told that this many messages came; [`Self::wake`] gets it sent.
    pub(crate) fn acknowledge(&self, received: u64) {
        if let Some(kept) = &mut lock(&self.0).kept {
            kept.acknowledge(received);
        }
    }

    /// The manager has this many messages.
    pub(crate) fn manager_has(&self, received: u64) -> Result<(), WrongCount> {
        lock(&self.0).kept.as_mut().map_or(Ok(()), |kept| kept.manager_has(received))
    }

    /// What another connection sends: `first`, and, once [`Self::go_on`] says so, what the manager lacks and what is new.
    pub(crate) fn connection(self: &Arc<Self>, first: v1::ClientMessage) -> OutboxStream {
        let mut inner = lock(&self.0);
        inner.last_connection += 1;
        let connection = inner.last_connection;
        drop(inner);
        OutboxStream { outbox: Arc::clone(self), connection, first: Some(first) }
    }

    /// The latest connection sends from now on; the manager has this many messages.
    pub(crate) fn go_on(&self, received: u64) -> Result<(), WrongCount> {
        let mut inner = lock(&self.0);
        if let Some(kept) = &mut inner.kept {
            kept.manager_has(received)?;
            kept.rewind();
        }
        inner.connection = inner.last_connection;
        let wakers = [inner.waker.take(), inner.waiting_to_send.take()];
        drop(inner);
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
        Ok(())
    }

    /// Whether more may be enqueued without waiting.
    pub(crate) fn has_room(&self) -> bool {
        lock(&self.0).has_room()
    }

    /// Ready when more may be enqueued.
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

    /// Ends the stream; what is still in it is dropped, and no source is read again.
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

    /// The next message of the queue.
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

    /// Wakes who waits for room once half of it is free, so that nobody is woken for every message.
    fn wake_waiting(&mut self) {
        if self.entries.len() < MAX_ENTRIES / 2 {
            for waker in self.waiting_for_room.drain(..) {
                waker.wake();
            }
        }
    }
}

/// The sending side's view: a stream of messages over one connection.
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
        if let Some(said) = inner.kept.as_mut().and_then(Kept::next) {
            return Poll::Ready(Some(said));
        }
        // Beside a ring nothing is sent, and this only notices the end.
        let next = if inner.ring.is_none() { inner.next() } else { None };
        match next {
            Some(outgoing) => {
                if let Some(kept) = &mut inner.kept {
                    kept.sent(&outgoing);
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

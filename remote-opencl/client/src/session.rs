//! A session: the connection to a manager, enqueued and outstanding commands, and the manager's messages.
//!
//! All state is behind std locks, so any thread may drive. Lock order: a kernel's arguments, then the session's
//! state, then the leaves outbox, releases, events, and queues' progress. No call that can block is made with a
//! lock held.

mod adaptive_spin;
mod batch;
pub(crate) mod callbacks;
mod calls;
mod downloads;
pub(crate) mod driver;
pub(crate) mod holder;
pub(crate) mod host_order;
mod incoming;
pub(crate) mod pending_command;
mod sending;
mod waiting;

pub(crate) use calls::check_status;
pub(crate) use holder::Holder;
pub use holder::Notice;

use crate::base::clock::ManagerClock;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::host_memory::Awaited;
use crate::memory::placed::{PlacedRange, PlacedSegments};
use crate::memory::segments::{Purpose, Range, SegmentCalls, Segments};
use crate::trace;
use crate::wire::command_ring::RingReader;
use crate::wire::features::{HostPipes, ManagerFeatures, RectCommands, Traces};
use crate::wire::outbox::Outbox;
use crate::wire::transport::Connection;
use adaptive_spin::AdaptiveSpin;
use batch::Batch;
use downloads::Downloads;
use driver::Driver;
use fpga_foreign_process::generation;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1::{self, call::Method};
use host_order::HostOrder;
use pending_command::PendingCommand;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tonic::transport::Channel;

/// Bit that is set in the ids of transfers that aren't a command's data.
const OTHER_TRANSFER: u64 = 1 << 63;

#[derive(Debug)]
pub(crate) struct Session {
    generation: u64,
    driver: &'static Driver,
    outbox: Arc<Outbox>,
    clock: ManagerClock,
    next_id: AtomicU64,
    lost: AtomicBool,
    state: Mutex<State>,
    releases: Mutex<v1::Release>,
    segments: Segments,
    placed: PlacedSegments,
    host_order: HostOrder,
    ring: Option<Arc<RingReader>>,
    features: ManagerFeatures,
    holder: Holder,
    adaptive_spin: AdaptiveSpin,
    _channel: Channel,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch<Enqueued>,
    /// The commands that the manager has not reported as ended, by the ids of their events.
    at_manager: HashMap<u64, Arc<dyn PendingCommand>>,
    calls: HashMap<u64, oneshot::Sender<v1::Reply>>,
    downloads: Downloads,
}

/// A command that was not sent, and the id of its event.
#[derive(Debug)]
struct Enqueued {
    event: u64,
    pending: Arc<dyn PendingCommand>,
}

/// Whether a call put something into the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    No,
}

impl Session {
    /// The session of a new connection. Starts the task that reads from the connection, so it must be called inside
    /// the driver's runtime.
    pub(crate) fn start(driver: &'static Driver, connection: Connection, holder: Holder) -> Arc<Self> {
        let Connection { outbox, inbox, platforms: _, clock, fd_channel, features, channel, resumable } =
            connection;
        let session = Arc::new(Self {
            generation: generation(),
            driver,
            outbox,
            clock,
            next_id: AtomicU64::new(1),
            lost: AtomicBool::new(false),
            state: Mutex::default(),
            releases: Mutex::default(),
            segments: Segments::new(fd_channel, features.buffers),
            placed: PlacedSegments::new(features.usm_alignment),
            host_order: HostOrder::default(),
            ring: inbox.ring.clone(),
            features,
            holder,
            adaptive_spin: AdaptiveSpin::default(),
            _channel: channel,
        });
        tokio::spawn(incoming::read(incoming::Reader(Arc::downgrade(&session)), inbox, resumable));
        session
    }

    /// A new id for an object, event or call; no id is used twice.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// An id for a transfer that isn't a command's data.
    pub(crate) fn new_transfer_id(&self) -> u64 {
        self.new_id() | OTHER_TRANSFER
    }

    /// Whether the session can be used: this process made it and its manager is not lost.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_own() && !self.lost.load(Ordering::Relaxed)
    }

    /// Whether this process made the session. False in a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.generation == generation()
    }

    /// Whether the manager has commands on rectangles.
    pub(crate) fn takes_rects(&self) -> bool {
        self.features.rects == RectCommands::Known
    }

    /// Whether the manager has host pipes.
    pub(crate) fn has_host_pipes(&self) -> bool {
        self.features.host_pipes == HostPipes::Known
    }

    /// The trace of the calling thread, if it has one and the manager records it.
    fn trace(&self) -> Option<v1::Trace> {
        (self.features.traces == Traces::Recorded).then(trace::current).flatten()
    }

    /// `Err(error)` if the session can't be used.
    pub(crate) fn check(&self, error: ClError) -> Result<()> {
        if self.is_usable() { Ok(()) } else { Err(error) }
    }

    /// What pending commands mean for commands that take bytes of host memory.
    pub(crate) fn host_order(&self) -> &HostOrder {
        &self.host_order
    }

    /// Shared memory for bulk data; `None` if the data has to travel in messages.
    pub(crate) fn shared_memory(&self, len: usize, awaited: Awaited) -> Option<Range> {
        self.segments.take(self, Purpose::Staging, len, awaited)
    }

    /// Requests shared memory, without waiting for it, if data of this size doesn't fit into a message.
    pub(crate) fn prepare_shared_memory(&self, len: usize) {
        if len > MAX_INLINE_BYTES && self.is_usable() {
            self.segments.prepare(self);
        }
    }

    /// Shared memory for a buffer; `None` if the buffer has to lie at the manager.
    pub(crate) fn storage(&self, len: usize) -> Option<Range> {
        self.segments.take_storage(self, len)
    }

    /// Whether buffers of less than a page can lie in shared memory.
    pub(crate) fn small_buffers_share_pages(&self) -> bool {
        self.segments.small_buffers_share_pages()
    }

    /// Releases shared memory that isn't needed any more. To be called when a buffer in shared memory was destroyed.
    pub(crate) fn storage_freed(&self) {
        if self.is_usable() {
            self.segments.trim(self);
        }
    }

    /// Memory of `len` bytes with one address on both sides, a multiple of `alignment`.
    pub(crate) fn placed(&self, len: usize, alignment: usize) -> Result<PlacedRange> {
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        self.placed.take(self, &self.segments, (len, alignment))
    }

    /// Releases memory with one address on both sides that isn't needed any more.
    pub(crate) fn placed_freed(&self) {
        if self.is_usable() {
            self.placed.trim(self);
        }
    }

    /// Ends the session at the wish of the program, and fails all its commands and calls.
    pub(crate) fn close(&self) {
        if self.end("closed by the program") {
            self.driver.arm();
        }
    }

    /// Ends the session, whose manager is gone, and fails all its commands and calls.
    fn lose(&self, why: &str) {
        if self.end(why) {
            self.holder.lost(why);
        }
    }

    /// Ends the session. Returns false if it has ended before.
    fn end(&self, why: &str) -> bool {
        if self.lost.swap(true, Ordering::SeqCst) {
            return false;
        }
        tracing::debug!(why, "A session has ended");
        self.outbox.close();
        let (not_sent, at_manager, calls) = {
            let mut state = lock(&self.state);
            let State { mut batch, at_manager, calls, downloads: _ } = std::mem::take(&mut *state);
            (batch.take().pending, at_manager, calls)
        };
        self.driver.remove_outstanding(at_manager.len());
        let not_sent = not_sent.into_iter().map(|Enqueued { event, pending }| (event, pending));
        let mut commands: Vec<_> = not_sent.chain(at_manager).collect();
        commands.sort_by_key(|(event, _)| *event);
        for (_, command) in commands {
            command.fail(ClError::OUT_OF_RESOURCES);
        }
        // The callers see the closed channel.
        drop(calls);
        true
    }
}

impl SegmentCalls for Session {
    fn new_id(&self) -> u64 {
        self.new_id()
    }

    fn start_call(&self, method: Method) -> Result<oneshot::Receiver<v1::Reply>> {
        self.start_call(method)
    }

    fn wait_for_reply(&self, receiver: oneshot::Receiver<v1::Reply>) -> Result<v1::Reply> {
        self.wait_for_reply(receiver)
    }

    fn push_out(&self) {
        self.push_out();
    }

    fn release(&self, object: u64) {
        self.release(object);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_own() {
            self.outbox.close();
            self.driver.arm();
        }
    }
}

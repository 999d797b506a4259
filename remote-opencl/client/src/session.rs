//! A session: the connection to a manager, enqueued and outstanding commands, and the manager's messages.
//!
//! All state is behind std locks, so any thread may drive. Lock order: a kernel's arguments, then the session's
//! state, then the leaves outbox, releases, events, and queues' progress. No call that can block is made with a
//! lock held.

pub(crate) mod batch;
pub(crate) mod callbacks;
pub(crate) mod driver;
mod incoming;
pub(crate) mod patience;
pub(crate) mod process;

use crate::base::clock::{Offset, now_ns};
use crate::base::fork;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::host_memory::Awaited;
use crate::memory::segments::{Purpose, Range, Segments};
use crate::objects::event::Event;
use crate::objects::in_place::Access;
use crate::session::batch::Batch;
use crate::session::driver::Driver;
use crate::session::patience::{Habit, Wait};
use crate::wire::command_ring::RingReader;
use crate::wire::outbox::{Outbox, Upload};
use crate::wire::transport::{Connection, Rects};
use bytes::{Bytes, BytesMut};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::v1::{self, call::Method, client_message::Kind, data::Form};
use prost::Message as _;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::oneshot;
use tonic::transport::Channel;

/// Bit that is set in the ids of transfers that aren't a command's data.
const OTHER_TRANSFER: u64 = 1 << 63;

/// Greatest number of ids in one Release, which is then far below the greatest message.
const MAX_RELEASED: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Session {
    generation: u32,
    driver: &'static Driver,
    outbox: Arc<Outbox>,
    offset: Offset,
    next_id: AtomicU64,
    lost: AtomicBool,
    state: Mutex<State>,
    releases: Mutex<v1::Release>,
    segments: Segments,
    ring: Option<Arc<RingReader>>,
    rects: Rects,
    habit: Habit,
    _channel: Channel,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch<Arc<Event>>,
    at_manager: HashMap<u64, Arc<Event>>,
    calls: HashMap<u64, oneshot::Sender<v1::Reply>>,
    downloads: HashMap<u64, Download>,
}

/// A transfer from the manager that no call has taken yet.
#[derive(Debug)]
struct Download {
    length: u64,
    bytes: BytesMut,
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
    pub(crate) fn start(driver: &'static Driver, connection: Connection) -> Arc<Self> {
        let Connection { outbox, inbox, platforms: _, offset, side, buffers, rects, channel, way } =
            connection;
        let session = Arc::new(Self {
            generation: fork::generation(),
            driver,
            outbox,
            offset,
            next_id: AtomicU64::new(1),
            lost: AtomicBool::new(false),
            state: Mutex::default(),
            releases: Mutex::default(),
            segments: Segments::new(side, buffers),
            ring: inbox.ring.clone(),
            rects,
            habit: Habit::default(),
            _channel: channel,
        });
        tokio::spawn(incoming::read(incoming::Reader(Arc::downgrade(&session)), inbox, way));
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
        self.generation == fork::generation()
    }

    /// Whether the manager has commands on rectangles.
    pub(crate) fn takes_rects(&self) -> bool {
        self.rects == Rects::Known
    }

    /// `Err(error)` if the session can't be used.
    pub(crate) fn check(&self, error: ClError) -> Result<()> {
        if self.is_usable() { Ok(()) } else { Err(error) }
    }

    // === what goes out ===

    /// Calls a method and waits for the reply, whatever its status.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` if the session can't be used or is lost meanwhile, `CL_OUT_OF_RESOURCES` for a
    /// call that is too long.
    pub(crate) fn call(&self, method: Method) -> Result<v1::Reply> {
        let receiver = self.ask(method)?;
        self.answer(receiver)
    }

    /// Calls a method. The reply comes through the returned channel.
    pub(crate) fn ask(&self, method: Method) -> Result<oneshot::Receiver<v1::Reply>> {
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        let id = self.new_id();
        let call = sendable(v1::Call { id, method: Some(method) })?;
        let (sender, receiver) = oneshot::channel();
        let mut state = lock(&self.state);
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        state.calls.insert(id, sender);
        self.send_locked(&mut state);
        self.outbox.push(call);
        Ok(receiver)
    }

    /// Waits for a reply that [`Self::ask`] requested.
    pub(crate) fn answer(&self, mut receiver: oneshot::Receiver<v1::Reply>) -> Result<v1::Reply> {
        let wait = self.habit.wait();
        if self.ring.is_some() {
            self.outbox.wake();
            self.watch_ring(wait.as_ref(), || !receiver.is_empty() || receiver.is_terminated());
            if let Ok(reply) = receiver.try_recv() {
                return Ok(reply);
            }
        }
        let reply = self.driver.block_on(async {
            self.outbox.wake();
            self.patiently(wait.as_ref(), receiver).await
        });
        reply.map_err(|_| ClError::DEVICE_NOT_AVAILABLE)
    }

    /// Calls a method without a reply. The call is sent before all commands that are enqueued later.
    pub(crate) fn cast(&self, method: Method) -> Result<()> {
        self.check(ClError::DEVICE_NOT_AVAILABLE)?;
        self.outbox.push(sendable(v1::Call { id: 0, method: Some(method) })?);
        Ok(())
    }

    /// Data for a call: inline if it is small, else a transfer, which is sent before the call.
    pub(crate) fn data(&self, bytes: Bytes) -> v1::Data {
        let form = if bytes.len() <= fpga_protocol::limits::MAX_INLINE_BYTES {
            Form::Inline(bytes)
        } else {
            let source = crate::memory::host_memory::HostSource::owned(bytes);
            let upload = Arc::new(Upload::new(self.new_transfer_id(), source));
            let transfer = v1::Transfer { id: upload.transfer, length: upload.length };
            self.outbox.push_upload(upload);
            Form::Transfer(transfer)
        };
        v1::Data { form: Some(form) }
    }

    /// Shared memory for bulk data; `None` if the data has to travel in messages.
    pub(crate) fn shared_memory(&self, len: usize, awaited: Awaited) -> Option<Range> {
        self.segments.take(self, Purpose::Staging, len, awaited)
    }

    /// Requests shared memory, without waiting for it, if data of this size doesn't fit into a message.
    pub(crate) fn prepare_shared_memory(&self, len: usize) {
        if len > fpga_protocol::limits::MAX_INLINE_BYTES && self.is_usable() {
            self.segments.prepare(self);
        }
    }

    /// Shared memory for a buffer; `None` if the buffer has to lie at the manager.
    pub(crate) fn storage(&self, len: usize) -> Option<Range> {
        self.segments.take(self, Purpose::Storage, len, Awaited::Yes)
    }

    /// Releases shared memory that isn't needed any more. To be called when a buffer in shared memory was destroyed.
    pub(crate) fn storage_freed(&self) {
        if self.is_usable() {
            self.segments.trim(self);
        }
    }

    /// Enqueues a command. `upload` is the transfer of its data, `access` its use of buffers in shared memory.
    pub(crate) fn enqueue(
        &self,
        mut command: v1::Command,
        event: Arc<Event>,
        upload: Option<Arc<Upload>>,
        access: &Access,
    ) -> Result<Sent> {
        // Half of a message leaves room for the message's other fields, and for events that `access` adds to the
        // wait list.
        if command.encoded_len() > MAX_MESSAGE_BYTES / 2 {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let mut state = lock(&self.state);
        self.check(ClError::OUT_OF_RESOURCES)?;
        let mut sent = Sent::No;
        if state.batch.must_go_before(&command, upload.as_deref()) {
            sent = self.send_locked(&mut state);
        }
        // Nothing may be sent between the two following steps. Sending includes releases, and a read in place that
        // ends meanwhile would have the user event released for which this command waits.
        access.order(self, &mut command);
        state.batch.push(command, event, upload);
        if state.batch.is_due(state.at_manager.len()) {
            sent = self.send_locked(&mut state);
        }
        Ok(sent)
    }

    /// Puts pending commands into the outbox. A thread that waits calls this and then [`Self::wait`].
    pub(crate) fn send(&self) -> Sent {
        if !self.is_usable() {
            return Sent::No;
        }
        self.send_locked(&mut lock(&self.state))
    }

    /// Sends the content of the outbox and waits for `future`, which is ready when `is_done` returns true.
    pub(crate) fn wait<F: Future>(&self, is_done: impl Fn() -> bool, future: F) {
        let wait = self.habit.wait();
        if self.ring.is_some() {
            self.outbox.wake();
            self.watch_ring(wait.as_ref(), &is_done);
            if is_done() {
                self.driver.arm_if_outstanding();
                return;
            }
        }
        self.driver.block_on(async {
            self.outbox.wake();
            self.patiently(wait.as_ref(), future).await;
        });
    }

    /// Waits for `future` on the thread that drives. Without a ring, the thread first polls before it sleeps, if
    /// that is faster.
    async fn patiently<F: Future>(&self, wait: Option<&Wait<'_>>, future: F) -> F::Output {
        let mut future = pin!(future);
        if let Some(wait) = wait.filter(|wait| wait.looks() && self.ring.is_none()) {
            while !wait.is_over() {
                if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
                    return output;
                }
                // Sends and receives everything that needs no waiting.
                tokio::task::yield_now().await;
            }
        }
        future.await
    }

    /// Sends pending commands without waiting for an answer.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check(ClError::OUT_OF_RESOURCES)?;
        self.send();
        self.push_out();
        Ok(())
    }

    /// Sends the content of the outbox without waiting for an answer.
    pub(crate) fn push_out(&self) {
        self.outbox.wake();
        match &self.ring {
            // All messages are in the ring. If no thread waits for the answer, the background thread will receive it.
            Some(_) if self.outbox.is_sent() => {
                self.look_into_ring();
                self.driver.arm_if_outstanding();
            }
            _ => self.driver.turn(),
        }
    }

    /// Calls [`Self::push_out`], or waits for room if too many messages wait to be sent (T-5).
    pub(crate) fn push_out_and_wait_for_room(&self) {
        if self.outbox.has_room() {
            self.push_out();
            return;
        }
        self.driver.block_on(async {
            self.outbox.wake();
            poll_fn(|cx| self.outbox.poll_room(cx)).await;
        });
    }

    fn send_locked(&self, state: &mut State) -> Sent {
        let mut sent = Sent::No;
        if !state.batch.is_empty() {
            let taken = state.batch.take();
            for upload in taken.uploads {
                self.outbox.push_upload(upload);
            }
            self.outbox.push(Kind::Flush(taken.flush));
            let now = now_ns();
            self.driver.add_outstanding(taken.events.len());
            for event in taken.events {
                event.submitted(now);
                state.at_manager.insert(event.id(), event);
            }
            sent = Sent::Yes;
        }
        let v1::Release { objects, events } = std::mem::take(&mut *lock(&self.releases));
        let release = |objects: &[u64], events: &[u64]| {
            let release = v1::Release { objects: objects.to_vec(), events: events.to_vec() };
            self.outbox.push(Kind::Call(v1::Call { id: 0, method: Some(Method::Release(release)) }));
        };
        let (mut objects, mut events) = (objects.chunks(MAX_RELEASED), events.chunks(MAX_RELEASED));
        loop {
            match (objects.next(), events.next()) {
                (None, None) => break,
                (objects, events) => release(objects.unwrap_or_default(), events.unwrap_or_default()),
            }
            sent = Sent::Yes;
        }
        sent
    }

    // === releases ===

    /// Notes that an object has no references any more. It is released with the next batch, or by the background
    /// thread.
    pub(crate) fn release(&self, object: u64) {
        if self.is_usable() {
            lock(&self.releases).objects.push(object);
            self.driver.arm();
            self.driver.let_go_in_background();
        }
    }

    /// Notes that no later wait list can name the event. It is released with the next batch.
    pub(crate) fn release_event(&self, event: u64) {
        if self.is_usable() {
            lock(&self.releases).events.push(event);
        }
    }

    /// Sends the releases unless commands are pending that may still use the objects. Called on the thread that
    /// drives.
    pub(crate) fn send_releases(&self) {
        if self.is_usable() {
            let mut state = lock(&self.state);
            if state.batch.is_empty() {
                self.send_locked(&mut state);
            }
        }
        self.outbox.wake();
    }

    // === what comes in ===

    /// The bytes of data in a reply.
    pub(crate) fn take_data(&self, data: Option<v1::Data>) -> Result<Bytes> {
        match data.and_then(|data| data.form) {
            Some(Form::Inline(bytes)) => Ok(bytes),
            // Replies never have data in shared memory.
            Some(Form::Segment(_)) => Err(ClError::OUT_OF_RESOURCES),
            Some(Form::Transfer(transfer)) => {
                let download = lock(&self.state).downloads.remove(&transfer.id);
                let download = download.filter(|download| {
                    download.length == transfer.length && download.bytes.len() as u64 == transfer.length
                });
                Ok(download.ok_or(ClError::OUT_OF_RESOURCES)?.bytes.freeze())
            }
            None => Ok(Bytes::new()),
        }
    }

    /// Ends the session, whose manager is gone, and fails all its commands and calls.
    fn lose(&self, why: &str) {
        if self.lost.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::debug!(why, "Lost a device manager");
        self.outbox.close();
        let (events, at_manager, calls) = {
            let mut state = lock(&self.state);
            let State { mut batch, at_manager, calls, downloads: _ } = std::mem::take(&mut *state);
            (batch.take().events, at_manager, calls)
        };
        self.driver.remove_outstanding(at_manager.len());
        let mut events: Vec<_> = events.into_iter().chain(at_manager.into_values()).collect();
        events.sort_by_key(|event| event.id());
        for event in events {
            event.fail(ClError::OUT_OF_RESOURCES);
        }
        // The callers see the closed channel.
        drop(calls);
    }
}

/// A call as a message.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` for a call that exceeds the manager's limit, since sending it would end the session.
fn sendable(call: v1::Call) -> Result<Kind> {
    /// Upper bound of the bytes of the message around the call.
    const ENVELOPE_BYTES: usize = 16;
    if call.encoded_len() > MAX_MESSAGE_BYTES - ENVELOPE_BYTES {
        tracing::warn!(bytes = call.encoded_len(), "A call is longer than any message");
        return Err(ClError::OUT_OF_RESOURCES);
    }
    Ok(Kind::Call(call))
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_own() {
            self.outbox.close();
            self.driver.arm();
        }
    }
}

//! Events: the states of commands, waiting, callbacks, and profiling times.
//!
//! ```text
//!  QUEUED ── sent ──► SUBMITTED ── completion ──► (RUNNING) ──► COMPLETE or a negative status
//! ```
//! A manager reports only the end of a command, so RUNNING is passed at the end; callbacks see all states in order.
//! An event ends once. The thread that drives ends it and wakes the threads that wait.

mod ending;
mod waiting;

use crate::base::clock::now_ns;
use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_memory::HostTarget;
use crate::memory::pitches::Scatter;
use crate::memory::segments::Range;
use crate::objects::buffer::InUse;
use crate::objects::context::Context;
use crate::objects::image::Image;
use crate::objects::in_place::{BufferAccess, InPlaceRead};
use crate::objects::kernel::{Kernel, Other};
use crate::objects::late::{Gate, LateBytes};
use crate::objects::queue::Queue;
use crate::session::Session;
use crate::session::callbacks;
use crate::session::pending_command::User;
use crate::wire::outgoing::Upload;
use fpga_protocol::v1::{self, call::Method};
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

/// The event of a command, or a user event.
pub struct Event {
    id: u64,
    context: Arc<Context>,
    queue: Option<Arc<Queue>>,
    command_type: u32,
    known_to: KnownTo,
    status: AtomicI32,
    inner: Mutex<Inner>,
}

/// Who knows the id of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownTo {
    /// The manager, which has to hear when the event is dropped.
    Manager,
    /// This process alone, which executed the command.
    Client,
}

#[derive(Default)]
struct Inner {
    wakers: Vec<Waker>,
    callbacks: Vec<(i32, Callback)>,
    times: Profiling,
    uses: Uses,
    received: usize,
    /// Whether the manager has been told that nobody refers to the event.
    unwatched: bool,
}

type Callback = Box<dyn FnOnce(i32) + Send>;

/// Objects and memory that a command needs until it has ended.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Destination of a read's bytes.
    pub(crate) target: Option<HostTarget>,
    /// Source of a write's bytes that travel in chunks.
    pub(crate) upload: Option<Arc<Upload>>,
    /// The range of shared memory through which the bytes travel.
    pub(crate) range: Option<Range>,
    /// A read in place of a buffer in shared memory.
    pub(crate) in_place: Option<InPlaceRead>,
    /// Of a marker: the bytes that the command behind it takes when the marker has completed.
    pub(crate) late: Option<LateBytes>,
    /// Of a command that takes its bytes late: what holds it back until then.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Destination with gaps, to which the bytes in `target` are copied.
    pub(crate) scatter: Option<Scatter>,
    pub(crate) buffers: Vec<InUse>,
    #[expect(dead_code, reason = "held, not looked at")]
    pub(crate) images: Vec<Arc<Image>>,
    /// Other objects among the kernel's arguments.
    pub(crate) others: Vec<Other>,
    #[expect(dead_code, reason = "held, not looked at")]
    pub(crate) kernel: Option<Arc<Kernel>>,
}

/// What an appended command has to do with other commands and with messages.
pub(crate) struct Appended {
    /// The transfer of its data.
    pub(crate) upload: Option<Arc<Upload>>,
    pub(crate) access: BufferAccess,
    /// The host memory to which it gives bytes.
    pub(crate) gives: Option<std::ops::Range<usize>>,
}

/// Times of a command in ns, on the clock of [`crate::Client::now_ns`]. The duration on the device is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Profiling {
    /// Time of the enqueue call.
    pub queued: u64,
    /// Time at which the command was sent.
    pub submitted: u64,
    /// Time at which the device started the command.
    pub started: u64,
    /// Time at which the device ended the command.
    pub ended: u64,
}

impl Uses {
    /// The range of shared memory, as a message names it.
    pub(crate) fn range_message(&self) -> Option<v1::SegmentRange> {
        self.range.as_ref().map(Range::message)
    }

    /// How the command accesses buffers in shared memory.
    fn access(&self) -> BufferAccess {
        let stored = |buffer: &&InUse| buffer.0.storage().is_some();
        let buffers: Vec<_> =
            self.buffers.iter().filter(stored).map(|buffer| Arc::clone(&buffer.0)).collect();
        match (&self.in_place, buffers.as_slice()) {
            (Some(_), [buffer]) => BufferAccess::Reads(Arc::clone(buffer)),
            _ => BufferAccess::Changes(buffers),
        }
    }
}

impl Event {
    /// A user event (`clCreateUserEvent`) with status `CL_SUBMITTED`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` if the manager is gone.
    pub fn user(context: &Arc<Context>) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateUserEvent(v1::CreateUserEvent { event: id, context: context.id() }))?;
        session.host_order().begin_user_event(id);
        Ok(Arc::new(Self {
            id,
            context: Arc::clone(context),
            queue: None,
            command_type: cl::COMMAND_USER,
            known_to: KnownTo::Manager,
            status: AtomicI32::new(cl::SUBMITTED),
            inner: Mutex::default(),
        }))
    }

    pub(crate) fn of_command(queue: &Arc<Queue>, id: u64, command_type: u32, uses: Uses) -> Arc<Self> {
        let times = Profiling { queued: now_ns(), ..Profiling::default() };
        Arc::new(Self {
            id,
            context: Arc::clone(queue.context()),
            queue: Some(Arc::clone(queue)),
            command_type,
            known_to: KnownTo::Manager,
            status: AtomicI32::new(cl::QUEUED),
            inner: Mutex::new(Inner { times, uses, ..Inner::default() }),
        })
    }

    /// The event of a command that this process executed itself, from `started` until now.
    pub(crate) fn of_executed(queue: &Arc<Queue>, command_type: u32, started: u64) -> Arc<Self> {
        let times = Profiling { queued: started, submitted: started, started, ended: now_ns() };
        Arc::new(Self {
            id: queue.session().new_id(),
            context: Arc::clone(queue.context()),
            queue: Some(Arc::clone(queue)),
            command_type,
            known_to: KnownTo::Client,
            status: AtomicI32::new(cl::COMPLETE),
            inner: Mutex::new(Inner { times, ..Inner::default() }),
        })
    }

    /// Lets the allocations of unified shared memory know that the command uses them.
    pub(crate) fn note_uses(self: &Arc<Self>) {
        let user = || {
            let this: Weak<Self> = Arc::downgrade(self);
            this as Weak<dyn User>
        };
        let uses = &lock(&self.inner).uses;
        for buffer in &uses.buffers {
            buffer.0.note_user(user);
        }
        for other in &uses.others {
            if let Other::Indirect(launch) = other {
                launch.set_event(user());
            }
        }
    }

    pub(crate) fn appended(&self) -> Appended {
        let uses = &lock(&self.inner).uses;
        let target = uses.scatter.as_ref().map(|scatter| &scatter.target).or(uses.target.as_ref());
        Appended {
            // Data that is taken late has an upload of its own, which may be on its way already.
            upload: uses.upload.clone().filter(|_| uses.gate.is_none()),
            access: uses.access(),
            gives: target.map(HostTarget::addresses),
        }
    }

    /// Sets the status of a user event, once, to `CL_COMPLETE` or a negative value.
    ///
    /// # Errors
    /// `CL_INVALID_EVENT` for other events, `CL_INVALID_VALUE` for other statuses, `CL_INVALID_OPERATION` for the
    /// second call, `CL_DEVICE_NOT_AVAILABLE` in a forked child.
    pub fn set_user_status(&self, status: i32) -> Result<()> {
        if self.command_type != cl::COMMAND_USER {
            return Err(ClError::INVALID_EVENT);
        }
        if status > cl::COMPLETE {
            return Err(ClError::INVALID_VALUE);
        }
        let session = self.session();
        if !session.is_own() {
            return Err(ClError::DEVICE_NOT_AVAILABLE);
        }
        if !self.end(status, None) {
            return Err(ClError::INVALID_OPERATION);
        }
        // If the manager is gone only this process needs the status, and its waiting threads were woken above.
        if session.is_usable() {
            // Commands enqueued earlier are sent first, since they may wait for this event.
            session.send();
            session.cast(Method::SetUserEvent(v1::SetUserEvent { event: self.id, status }))?;
            session.push_out();
        }
        Ok(())
    }

    /// Notes that the program has learned from this event that the command failed.
    fn failure_seen(&self) {
        if let Some(queue) = &self.queue {
            queue.failures().seen(self.id);
        }
    }

    /// Times of the command.
    ///
    /// # Errors
    /// `CL_PROFILING_INFO_NOT_AVAILABLE` unless the command has completed, for user events, and for queues without
    /// `CL_QUEUE_PROFILING_ENABLE`.
    pub fn profiling(&self) -> Result<Profiling> {
        let profiled =
            self.queue.as_ref().is_some_and(|queue| queue.properties() & cl::QUEUE_PROFILING_ENABLE != 0);
        if !profiled || !self.session().is_own() || self.now() != cl::COMPLETE {
            return Err(ClError::PROFILING_INFO_NOT_AVAILABLE);
        }
        Ok(lock(&self.inner).times)
    }

    /// Runs `callback` on the callback thread once the status is `status` or later (`clSetEventCallback`). The
    /// callback gets `status`, or the negative status of a command that failed.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a status other than SUBMITTED, RUNNING and COMPLETE, `CL_DEVICE_NOT_AVAILABLE` in a
    /// forked child, `CL_OUT_OF_RESOURCES` if the callback thread can't be started.
    pub fn on_status(&self, status: i32, callback: impl FnOnce(i32) + Send + 'static) -> Result<()> {
        if !(cl::COMPLETE..=cl::SUBMITTED).contains(&status) {
            return Err(ClError::INVALID_VALUE);
        }
        let session = self.session();
        if !session.is_own() {
            return Err(ClError::DEVICE_NOT_AVAILABLE);
        }
        {
            let mut inner = lock(&self.inner);
            let now = self.now();
            if now <= status {
                return callbacks::run(move || callback(if now < 0 { now } else { status }));
            }
            inner.callbacks.push((status, Box::new(callback)));
        }
        // A callback is a flush point, since the program may never wait for the event. If the session is lost the
        // event ends anyway.
        session.flush().or(Ok(()))
    }

    /// `CL_EVENT_COMMAND_TYPE`.
    pub fn command_type(&self) -> u32 {
        self.command_type
    }

    /// The context of the event.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    // === for the session and the queue ===

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn session(&self) -> &Arc<Session> {
        self.context.session()
    }

    /// The current status as known to this process.
    pub(crate) fn now(&self) -> i32 {
        self.status.load(Ordering::Acquire)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.command_type == cl::COMMAND_USER && self.session().is_own() {
            self.session().host_order().ended(self.id);
        }
        let is_released = self.inner.get_mut().is_ok_and(|inner| inner.unwatched);
        if self.known_to == KnownTo::Manager && !is_released {
            self.context.session().release_event(self.id);
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("command_type", &self.command_type)
            .field("status", &self.now())
            .finish_non_exhaustive()
    }
}

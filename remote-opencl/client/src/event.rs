//! Events: the states of commands, waiting, callbacks, times.
//!
//! ```text
//!  QUEUED ── sent ──► SUBMITTED ── completion ──► (RUNNING) ──► COMPLETE or a negative status
//! ```
//! A manager reports ends only, so that RUNNING is passed through at the end; callbacks see all of them in order.
//! An event ends once; the thread that drives ends it, and wakes whoever waits.

mod ending;
mod waiting;

use crate::buffer::InUse;
use crate::callbacks;
use crate::cl;
use crate::clock::now_ns;
use crate::context::Context;
use crate::error::{ClError, Result};
use crate::host_memory::HostTarget;
use crate::image::Image;
use crate::in_place::InPlaceRead;
use crate::kernel::{Kernel, Other};
use crate::outbox::Upload;
use crate::pitches::Scatter;
use crate::queue::Queue;
use crate::segments::Range;
use crate::session::Session;
use crate::sync::lock;
use fpga_protocol::v1::{self, call::Method};
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// The event of a command, or a user event.
pub struct Event {
    id: u64,
    context: Arc<Context>,
    queue: Option<Arc<Queue>>,
    command_type: u32,
    status: AtomicI32,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    wakers: Vec<Waker>,
    callbacks: Vec<(i32, Callback)>,
    times: Profiling,
    uses: Uses,
    received: usize,
}

type Callback = Box<dyn FnOnce(i32) + Send>;

/// What a command needs until it has ended.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Where a read's bytes go.
    pub(crate) target: Option<HostTarget>,
    /// A write's bytes.
    pub(crate) upload: Option<Arc<Upload>>,
    /// The shared memory that its bytes go through.
    pub(crate) range: Option<Range>,
    /// A read of a buffer where it lies.
    pub(crate) in_place: Option<InPlaceRead>,
    /// Where the bytes go from there, with gaps.
    pub(crate) scatter: Option<Scatter>,
    /// Its buffers.
    pub(crate) buffers: Vec<InUse>,
    /// Its images.
    #[expect(dead_code, reason = "held, not looked at")]
    pub(crate) images: Vec<Arc<Image>>,
    /// What else its arguments are.
    #[expect(dead_code, reason = "held, not looked at")]
    pub(crate) others: Vec<Other>,
    /// Its kernel.
    #[expect(dead_code, reason = "held, not looked at")]
    pub(crate) kernel: Option<Arc<Kernel>>,
}

/// When a command was where, in ns of [`crate::Client::now_ns`]'s clock; durations on the device are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Profiling {
    /// When it was enqueued.
    pub queued: u64,
    /// When it was sent.
    pub submitted: u64,
    /// When the device began.
    pub started: u64,
    /// When the device was done.
    pub ended: u64,
}

impl Event {
    /// A user event (`clCreateUserEvent`), `CL_SUBMITTED`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the manager is gone.
    pub fn user(context: &Arc<Context>) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateUserEvent(v1::CreateUserEvent { event: id, context: context.id() }))?;
        Ok(Arc::new(Self {
            id,
            context: Arc::clone(context),
            queue: None,
            command_type: cl::COMMAND_USER,
            status: AtomicI32::new(cl::SUBMITTED),
            inner: Mutex::default(),
        }))
    }

    /// The event of a command of `queue`.
    pub(crate) fn of_command(queue: &Arc<Queue>, id: u64, command_type: u32, uses: Uses) -> Arc<Self> {
        let times = Profiling { queued: now_ns(), ..Profiling::default() };
        Arc::new(Self {
            id,
            context: Arc::clone(queue.context()),
            queue: Some(Arc::clone(queue)),
            command_type,
            status: AtomicI32::new(cl::QUEUED),
            inner: Mutex::new(Inner { times, uses, ..Inner::default() }),
        })
    }

    /// Sets a user event to `CL_COMPLETE` or to a negative status, once.
    ///
    /// # Errors
    /// `CL_INVALID_EVENT` for other events, `CL_INVALID_VALUE` for other statuses, `CL_INVALID_OPERATION` the second
    /// time.
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
        // Without a manager there is nobody else to tell; who waits in this process has heard of it.
        if session.is_usable() {
            // What was enqueued before is sent before: it may wait for this event.
            session.send();
            session.cast(Method::SetUserEvent(v1::SetUserEvent { event: self.id, status }))?;
            session.push_out();
        }
        Ok(())
    }

    /// The program learns from the event itself that its command has failed.
    fn failure_seen(&self) {
        if let Some(queue) = &self.queue {
            queue.failures().seen(self.id);
        }
    }

    /// Its times.
    ///
    /// # Errors
    /// `CL_PROFILING_INFO_NOT_AVAILABLE` before it has completed, for user events and without
    /// `CL_QUEUE_PROFILING_ENABLE`.
    pub fn profiling(&self) -> Result<Profiling> {
        let profiled =
            self.queue.as_ref().is_some_and(|queue| queue.properties() & cl::QUEUE_PROFILING_ENABLE != 0);
        if !profiled || !self.session().is_own() || self.now() != cl::COMPLETE {
            return Err(ClError::PROFILING_INFO_NOT_AVAILABLE);
        }
        Ok(lock(&self.inner).times)
    }

    /// Runs `callback` on the callback thread once the status is `status` or beyond (`clSetEventCallback`), with the
    /// status asked for, or the negative one of a command that failed.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for another status than SUBMITTED, RUNNING or COMPLETE.
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
        // A callback is a flush point: nobody may ever wait for the event otherwise. A lost session ends it anyway.
        session.flush().or(Ok(()))
    }

    /// `CL_EVENT_COMMAND_TYPE`.
    pub fn command_type(&self) -> u32 {
        self.command_type
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The queue of its command; user events have none.
    pub fn queue(&self) -> Option<&Arc<Queue>> {
        self.queue.as_ref()
    }

    // === for the session and the queue ===

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn session(&self) -> &Arc<Session> {
        self.context.session()
    }

    /// The status as it is known now.
    pub(crate) fn now(&self) -> i32 {
        self.status.load(Ordering::Acquire)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.session().release_event(self.id);
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

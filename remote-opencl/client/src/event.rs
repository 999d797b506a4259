//! Events: the states of commands, waiting, callbacks, times.
//!
//! ```text
//!  QUEUED ── sent ──► SUBMITTED ── completion ──► (RUNNING) ──► COMPLETE or a negative status
//! ```
//! A manager reports ends only, so that RUNNING is passed through at the end; callbacks see all of them in order.
//! An event ends once; the thread that drives ends it, and wakes whoever waits.

use crate::buffer::InUse;
use crate::callbacks;
use crate::cl;
use crate::clock::{Offset, now_ns};
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
use fpga_protocol::v1::{self, call::Method, data::Form};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};

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

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`; polling it sends what is pending and lets completions in.
    pub fn status(&self) -> i32 {
        let session = self.session();
        if !session.is_own() {
            return ClError::DEVICE_NOT_AVAILABLE.0;
        }
        if self.now() > cl::COMPLETE && session.flush().is_err() {
            // Lost, and so ended or about to be.
            return if self.now() <= cl::COMPLETE { self.now() } else { ClError::OUT_OF_RESOURCES.0 };
        }
        let status = self.now();
        if status < cl::COMPLETE {
            self.failure_seen();
        }
        status
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when it failed, or a command before it in its queue that the program
    /// has not heard of.
    pub fn wait(&self) -> Result<()> {
        const FAILED: ClError = ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if self.end_status()? != cl::COMPLETE {
            self.failure_seen();
            return Err(FAILED);
        }
        let before = self.queue.as_ref().and_then(|queue| queue.failures().take_before(self.id));
        before.map_or(Ok(()), |_| Err(FAILED))
    }

    /// Waits until it has ended, for blocking calls.
    ///
    /// # Errors
    /// The first failure of a command of its queue that the program has not heard of, the command's own negative status.
    pub fn wait_for_status(&self) -> Result<()> {
        let status = self.end_status()?;
        match self.queue.as_ref().and_then(|queue| queue.failures().take()) {
            Some(error) => Err(error),
            None if status < cl::COMPLETE => Err(ClError(status)),
            None => Ok(()),
        }
    }

    /// The program learns from the event itself that its command has failed.
    fn failure_seen(&self) {
        if let Some(queue) = &self.queue {
            queue.failures().seen(self.id);
        }
    }

    /// `clWaitForEvents`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for none, `CL_INVALID_CONTEXT` for several contexts, and as [`Self::wait`].
    pub fn wait_all(events: &[Arc<Self>]) -> Result<()> {
        let first = events.first().ok_or(ClError::INVALID_VALUE)?;
        if events.iter().any(|event| !Arc::ptr_eq(&event.context, &first.context)) {
            return Err(ClError::INVALID_CONTEXT);
        }
        let mut result = Ok(());
        for event in events {
            match event.wait() {
                Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) => {
                    result = Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
                }
                waited => waited?,
            }
        }
        result
    }

    fn end_status(&self) -> Result<i32> {
        let session = self.session();
        if !session.is_own() {
            return Err(ClError::DEVICE_NOT_AVAILABLE);
        }
        if self.now() <= cl::COMPLETE {
            return Ok(self.now());
        }
        session.send();
        session.wait(|| self.now() <= cl::COMPLETE, poll_fn(|cx| self.poll_ended(cx)));
        Ok(self.now())
    }

    fn poll_ended(&self, cx: &mut TaskContext<'_>) -> Poll<i32> {
        let mut inner = lock(&self.inner);
        match self.now() {
            status if status <= cl::COMPLETE => Poll::Ready(status),
            _ => {
                if !inner.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    inner.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
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

    /// It was sent to the manager.
    pub(crate) fn submitted(&self, at: u64) {
        let reached = {
            let mut inner = lock(&self.inner);
            inner.times.submitted = at;
            self.status.store(cl::SUBMITTED, Ordering::Release);
            take_reached(&mut inner.callbacks, cl::SUBMITTED)
        };
        run_callbacks(reached, cl::SUBMITTED);
    }

    /// Takes a chunk of a read's data; false if it isn't the next one of this read.
    pub(crate) fn receive(&self, length: u64, offset: u64, bytes: &[u8]) -> bool {
        let mut inner = lock(&self.inner);
        let received = inner.received;
        let Some(target) = &mut inner.uses.target else { return false };
        let fits =
            target.len() as u64 == length && received as u64 == offset && target.write(received, bytes);
        if fits {
            inner.received += bytes.len();
        }
        fits
    }

    /// The manager says that it ended.
    pub(crate) fn completed(&self, completion: v1::Completion, offset: Offset) {
        let mut status = completion.status.min(cl::COMPLETE);
        if status == cl::COMPLETE && !(self.take_data(completion.data) && self.scatter()) {
            status = ClError::OUT_OF_RESOURCES.0;
        }
        if let (true, false, Some(queue)) = (status < cl::COMPLETE, completion.by_user_event, &self.queue) {
            queue.failures().note(self.id, ClError(status));
        }
        let ran = completion.ended_ns != 0;
        let times = ran.then(|| (offset.apply(completion.started_ns), offset.apply(completion.ended_ns)));
        self.end(status, times);
    }

    /// It won't be run, or nobody knows whether it was.
    pub(crate) fn fail(&self, error: ClError) {
        self.end(error.0, None);
    }

    /// It needs nothing from the manager, and is complete.
    pub(crate) fn complete_locally(&self) {
        self.completed_locally_since(now_ns());
    }

    /// It was done here, from that moment on.
    pub(crate) fn completed_locally_since(&self, started: u64) {
        self.submitted(started);
        self.end(cl::COMPLETE, Some((started, now_ns())));
    }

    /// Puts a read's data where it belongs; false when there is not exactly as much as was asked for.
    fn take_data(&self, data: Option<v1::Data>) -> bool {
        let wanted = {
            let mut inner = lock(&self.inner);
            let Uses { target, range, in_place, .. } = &mut inner.uses;
            match (target, range, in_place) {
                (None, ..) => return true,
                (Some(target), _, Some(read)) => return read.copy_to(target),
                (Some(target), Some(range), None) => return range.read_at(0, target),
                (Some(target), None, None) => target.len(),
            }
        };
        let taken = match data.and_then(|data| data.form) {
            Some(Form::Inline(bytes)) => bytes.len() == wanted && self.receive(wanted as u64, 0, &bytes),
            Some(Form::Transfer(transfer)) => transfer.id == self.id,
            Some(Form::Segment(_)) | None => false,
        };
        taken && lock(&self.inner).received == wanted
    }

    /// Puts what has been read where it belongs, if that is elsewhere.
    fn scatter(&self) -> bool {
        let Uses { target, scatter, .. } = &mut lock(&self.inner).uses;
        match (target, scatter) {
            (Some(packed), Some(scatter)) => scatter.pitches.scatter(&packed.capture(), &mut scatter.target),
            _ => true,
        }
    }

    /// Ends it; false if it has ended before.
    fn end(&self, status: i32, times: Option<(u64, u64)>) -> bool {
        let (wakers, callbacks, uses) = {
            let mut inner = lock(&self.inner);
            if self.now() <= cl::COMPLETE {
                return false;
            }
            let now = now_ns();
            let (started, ended) = times.unwrap_or((now, now));
            let submitted = inner.times.submitted.min(started);
            let queued = inner.times.queued.min(submitted);
            inner.times = Profiling { queued, submitted, started, ended: ended.max(started) };
            if let Some(upload) = &inner.uses.upload {
                upload.give_up();
            }
            self.status.store(status, Ordering::Release);
            let callbacks = take_reached(&mut inner.callbacks, cl::COMPLETE);
            (std::mem::take(&mut inner.wakers), callbacks, std::mem::take(&mut inner.uses))
        };
        // Buffers may be destroyed here, and their callbacks come before the event's.
        drop(uses);
        if status < cl::COMPLETE && !callbacks.is_empty() {
            self.failure_seen();
        }
        run_callbacks(callbacks, status);
        if let Some(queue) = &self.queue {
            queue.ended(self.id);
        }
        for waker in wakers {
            waker.wake();
        }
        true
    }
}

/// Takes the callbacks for `status` and those for earlier ones, in the order of the statuses.
fn take_reached(callbacks: &mut Vec<(i32, Callback)>, status: i32) -> Vec<(i32, Callback)> {
    let mut reached: Vec<_> = callbacks.extract_if(.., |(wanted, _)| *wanted >= status).collect();
    reached.sort_by_key(|(wanted, _)| -wanted);
    reached
}

fn run_callbacks(reached: Vec<(i32, Callback)>, status: i32) {
    for (wanted, callback) in reached {
        // Without a callback thread there was an error when the callback was registered or there is no memory.
        let _ = callbacks::run(move || callback(if status < 0 { status } else { wanted }));
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

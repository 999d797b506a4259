//! A job of a C program: one operation at a time, which the calling threads drive.

use crate::code::{ACC_E_BUSY, ACC_E_FORKED, ACC_E_TIMEOUT, ACC_PENDING, failure, invalid};
use crate::signal::{Deadline, Signal};
use acc::{Error, Job, Status};
use bytes::Bytes;
use fpga_foreign_process::c_boundary::Failure;
use fpga_foreign_process::generation;
use std::ffi::c_int;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake as _, Waker};
use tokio::sync::watch;

/// A job; made by acc_open() and its like, freed by acc_close().
pub struct AccJob {
    /// The process that made the handle; see [`generation`].
    generation: u64,
    signal: Arc<Signal>,
    status: watch::Receiver<Status>,
    is_cancelled: AtomicBool,
    inner: Mutex<Inner>,
}

/// What one thread at a time works on.
pub struct Inner {
    state: State,
    /// The buffer that the program fills.
    pub input: Vec<u8>,
    /// What came of the last operation.
    pub output: Bytes,
}

enum State {
    /// An operation is under way.
    Busy(Operation),
    /// The job has a slot, or waits for another one.
    Idle(Box<Job>),
    /// The job is over, for this reason.
    Over(Error),
}

/// A future of an operation: it has the job meanwhile.
pub type Operation = Pin<Box<dyn Future<Output = Ended> + Send>>;

/// How an operation has ended: with the job, unless it is over, and the output.
pub type Ended = Result<(Box<Job>, Bytes), (Option<Box<Job>>, Error)>;

impl AccJob {
    /// A job that begins with an operation.
    pub fn opening(opening: Operation, status: watch::Receiver<Status>) -> Result<Self, Failure> {
        let inner = Inner { state: State::Busy(opening), input: Vec::new(), output: Bytes::new() };
        Ok(Self {
            generation: generation(),
            signal: Signal::new()?,
            status,
            is_cancelled: AtomicBool::new(false),
            inner: Mutex::new(inner),
        })
    }

    /// Checks that this process made the handle.
    pub fn check_process(&self) -> Result<(), Failure> {
        if self.generation == generation() {
            return Ok(());
        }
        Err(Failure::new(ACC_E_FORKED, "the job is the parent's; after a fork the child opens its own"))
    }

    /// The descriptor that is readable when an operation can go on.
    pub fn descriptor(&self) -> c_int {
        self.signal.descriptor()
    }

    /// How far the job is. Any thread may ask.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Gives the job up. Any thread may say it, also while another one waits.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        // Whoever waits drops the operation. Else it is dropped here.
        self.signal.wake_by_ref();
        if let Ok(mut inner) = self.lock() {
            inner.state = State::Over(Error::Cancelled);
        }
    }

    /// What one thread at a time works on.
    ///
    /// # Errors
    /// `ACC_E_BUSY` if another thread does.
    pub fn lock(&self) -> Result<MutexGuard<'_, Inner>, Failure> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Ok(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => Err(Failure::new(ACC_E_BUSY, "another thread uses the job")),
        }
    }

    /// Drives the operation until it ends, at most until the deadline. `None` after the deadline.
    pub fn drive(&self, inner: &mut Inner, deadline: Deadline) -> Option<Result<(), Failure>> {
        let waker = Waker::from(Arc::clone(&self.signal));
        let mut context = Context::from_waker(&waker);
        loop {
            self.signal.clear();
            if self.is_cancelled.load(Ordering::Acquire) {
                inner.state = State::Over(Error::Cancelled);
            }
            match &mut inner.state {
                State::Idle(_) => return Some(Ok(())),
                State::Over(error) => return Some(Err(failure(error))),
                State::Busy(operation) => {
                    if let Poll::Ready(ended) = operation.as_mut().poll(&mut context) {
                        return Some(inner.end(ended));
                    }
                }
            }
            if !self.signal.wait(deadline) {
                return None;
            }
        }
    }

    /// Drives the operation as a call that waits does.
    pub fn wait(&self, inner: &mut Inner, deadline: Deadline) -> Result<c_int, Failure> {
        match self.drive(inner, deadline) {
            Some(ended) => ended.map(|()| 0),
            None => Err(Failure::new(ACC_E_TIMEOUT, format!("the time is over ({})", self.status()))),
        }
    }

    /// Drives the operation as far as it comes without waiting.
    pub fn poll(&self, inner: &mut Inner) -> Result<c_int, Failure> {
        self.drive(inner, Deadline::after(0)).map_or(Ok(ACC_PENDING), |ended| ended.map(|()| 0))
    }
}

impl Inner {
    /// The job, for an operation that begins, whose future `start` makes.
    pub fn begin(&mut self, start: impl FnOnce(Box<Job>) -> Operation) -> Result<(), Failure> {
        match std::mem::replace(&mut self.state, State::Over(Error::Cancelled)) {
            State::Idle(job) => {
                self.output = Bytes::new();
                self.state = State::Busy(start(job));
                Ok(())
            }
            busy @ State::Busy(_) => {
                self.state = busy;
                Err(Failure::new(ACC_E_BUSY, "an operation of the job is under way; wait for its end"))
            }
            State::Over(error) => {
                let failure = failure(&error);
                self.state = State::Over(error);
                Err(failure)
            }
        }
    }

    /// The job, if no operation is under way.
    pub fn job(&self) -> Result<&Job, Failure> {
        match &self.state {
            State::Idle(job) => Ok(job),
            State::Busy(_) => Err(Failure::new(ACC_E_BUSY, "an operation of the job is under way")),
            State::Over(error) => Err(failure(error)),
        }
    }

    /// Takes the job out, if no operation is under way.
    pub fn take(&mut self) -> Option<Box<Job>> {
        match std::mem::replace(&mut self.state, State::Over(Error::Cancelled)) {
            State::Idle(job) => Some(job),
            State::Busy(_) | State::Over(_) => None,
        }
    }

    /// The buffer that the program fills, as long as the accelerator takes pieces.
    pub fn buffer(&mut self) -> Result<&mut Vec<u8>, Failure> {
        if self.input.is_empty() {
            let bytes = usize::try_from(self.job()?.buffer_bytes()).unwrap_or(usize::MAX);
            self.input
                .try_reserve_exact(bytes)
                .map_err(|_| invalid(format!("there is no memory for a buffer of {bytes} bytes")))?;
            self.input.resize(bytes, 0);
        }
        Ok(&mut self.input)
    }

    fn end(&mut self, ended: Ended) -> Result<(), Failure> {
        match ended {
            Ok((job, output)) => {
                self.output = output;
                self.state = State::Idle(job);
                Ok(())
            }
            // What was wrong with a call changes nothing.
            Err((
                Some(job),
                error @ (Error::Size { .. } | Error::Block { .. } | Error::Length(_) | Error::Done),
            )) => {
                self.state = State::Idle(job);
                Err(failure(&error))
            }
            Err((_, error)) => {
                let failure = failure(&error);
                self.state = State::Over(error);
                Err(failure)
            }
        }
    }
}

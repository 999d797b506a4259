//! Events: the states of commands, waiting, callbacks, times.

use crate::context::Context;
use crate::error::{ClError, Result};
use crate::queue::Queue;
use std::sync::Arc;

/// The event of a command, or a user event.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    queue: Option<Arc<Queue>>,
    command_type: u32,
}

/// When a command was where, in ns of [`crate::Client::now_ns`]'s clock; durations on the device are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub fn user(_context: &Arc<Context>) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Sets a user event to `CL_COMPLETE` or to a negative status, once.
    ///
    /// # Errors
    /// `CL_INVALID_EVENT` for other events, `CL_INVALID_VALUE` for other statuses, `CL_INVALID_OPERATION` the second time.
    pub fn set_user_status(&self, _status: i32) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`; polling it sends what is pending and lets completions in.
    pub fn status(&self) -> i32 {
        ClError::INVALID_OPERATION.0
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when it failed.
    pub fn wait(&self) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Waits until it has ended, for blocking calls.
    ///
    /// # Errors
    /// The command's own negative status.
    pub fn wait_for_status(&self) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clWaitForEvents`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for none, `CL_INVALID_CONTEXT` for several contexts, and as [`Self::wait`].
    pub fn wait_all(_events: &[Arc<Self>]) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its times.
    ///
    /// # Errors
    /// `CL_PROFILING_INFO_NOT_AVAILABLE` before it has completed, for user events and without `CL_QUEUE_PROFILING_ENABLE`.
    pub fn profiling(&self) -> Result<Profiling> {
        Err(ClError::PROFILING_INFO_NOT_AVAILABLE)
    }

    /// Runs `callback` on the callback thread once the status is `status` or beyond (`clSetEventCallback`), with the
    /// status asked for, or the negative one of a command that failed.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for another status than SUBMITTED, RUNNING or COMPLETE.
    pub fn on_status(&self, _status: i32, callback: impl FnOnce(i32) + Send + 'static) -> Result<()> {
        drop(callback);
        Err(ClError::INVALID_OPERATION)
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
}

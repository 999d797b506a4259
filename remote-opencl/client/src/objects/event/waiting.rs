//! Waiting for events, and queries of their status.

use super::Event;
use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

impl Event {
    /// `CL_EVENT_COMMAND_EXECUTION_STATUS`. A query sends pending commands and receives completions.
    pub fn status(&self) -> i32 {
        let session = self.session();
        if !session.is_own() {
            return ClError::DEVICE_NOT_AVAILABLE.0;
        }
        if self.now() > cl::COMPLETE && session.flush().is_err() {
            // The session is lost: the event has ended or is about to end.
            return if self.now() <= cl::COMPLETE { self.now() } else { ClError::OUT_OF_RESOURCES.0 };
        }
        let status = self.now();
        if status < cl::COMPLETE {
            self.failure_seen();
        }
        status
    }

    /// Waits until the command has ended (`clWaitForEvents` for one event).
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` if the command failed, or if an earlier command of its queue
    /// failed and the program was not told yet. `CL_DEVICE_NOT_AVAILABLE` in a forked child.
    pub fn wait(&self) -> Result<()> {
        const FAILED: ClError = ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        if self.end_status()? != cl::COMPLETE {
            self.failure_seen();
            return Err(FAILED);
        }
        let before = self.queue.as_ref().and_then(|queue| queue.failures().take_before(self.id));
        before.map_or(Ok(()), |_| Err(FAILED))
    }

    /// Waits until the command has ended, for blocking calls.
    ///
    /// # Errors
    /// The first failure of a command of the queue that the program was not told yet, or the command's own negative
    /// status. `CL_DEVICE_NOT_AVAILABLE` in a forked child.
    pub fn wait_for_status(&self) -> Result<()> {
        let status = self.end_status()?;
        match self.queue.as_ref().and_then(|queue| queue.failures().take()) {
            Some(error) => Err(error),
            None if status < cl::COMPLETE => Err(ClError(status)),
            None => Ok(()),
        }
    }

    /// `clWaitForEvents`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for no events, `CL_INVALID_CONTEXT` for events of several contexts, and the errors of
    /// [`Self::wait`].
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

    pub(super) fn end_status(&self) -> Result<i32> {
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
}

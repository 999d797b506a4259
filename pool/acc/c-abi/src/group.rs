//! A group of a C program: its actions end in any order, and wait until the program takes them.

use crate::code::{ACC_E_DONE, ACC_E_FORKED, ACC_E_TIMEOUT, failure};
use crate::signal::{Deadline, Signal};
use acc::{Action, Error, Group, Statistics};
use bytes::Bytes;
use fpga_foreign_process::c_boundary::Failure;
use fpga_foreign_process::generation;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::ffi::c_int;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake as _, Waker};
use tokio::sync::watch;

/// A group; made by acc_group_open(), freed by acc_group_close().
pub struct AccGroup {
    generation: u64,
    signal: Arc<Signal>,
    statistics: watch::Receiver<Statistics>,
    group: Group,
    inner: Mutex<Inner>,
}

struct Inner {
    actions: FuturesUnordered<Tagged>,
    /// The output that the program was given last.
    last: Bytes,
}

/// An action with its tag.
type Tagged = Pin<Box<dyn Future<Output = EndedAction> + Send>>;

/// An action that has ended.
pub struct EndedAction {
    pub tag: u64,
    pub output: Result<Bytes, Error>,
}

impl AccGroup {
    /// The handle of a group.
    pub fn new(group: Group) -> Result<Self, Failure> {
        let inner = Inner { actions: FuturesUnordered::new(), last: Bytes::new() };
        let (generation, signal) = (generation(), Signal::new()?);
        Ok(Self { generation, signal, statistics: group.statistics(), group, inner: Mutex::new(inner) })
    }

    /// Checks that this process made the handle.
    pub fn check_process(&self) -> Result<(), Failure> {
        if self.generation == generation() {
            return Ok(());
        }
        Err(Failure::new(ACC_E_FORKED, "the group is the parent's; after a fork the child opens its own"))
    }

    /// The descriptor that is readable when an action has ended.
    pub fn descriptor(&self) -> c_int {
        self.signal.descriptor()
    }

    /// How far the group is.
    pub fn statistics(&self) -> Statistics {
        self.statistics.borrow().clone()
    }

    /// Puts an action into the queue, when there is room.
    pub fn submit(&self, tag: u64, input: &[u8], deadline: Deadline) -> Result<(), Failure> {
        let submitting = self.group.submit(Bytes::copy_from_slice(input));
        let action: Action = acc::wait(submitting, deadline.left()).map_err(|error| failure(&error))?;
        self.lock().actions.push(Box::pin(async move { EndedAction { tag, output: action.await } }));
        // The new action is polled by whoever waits.
        self.signal.wake_by_ref();
        Ok(())
    }

    /// Waits for an action that has ended, in whatever order. Returns its tag, and its output or its error.
    pub fn next(&self, deadline: Deadline) -> Result<(u64, Result<Bytes, Failure>), Failure> {
        let waker = Waker::from(Arc::clone(&self.signal));
        let mut context = Context::from_waker(&waker);
        loop {
            self.signal.clear();
            let mut inner = self.lock();
            match inner.actions.poll_next_unpin(&mut context) {
                Poll::Ready(Some(EndedAction { tag, output })) => {
                    inner.last = output.clone().unwrap_or_default();
                    // Another action may have ended as well.
                    self.signal.wake_by_ref();
                    return Ok((tag, output.map_err(|error| failure(&error))));
                }
                Poll::Ready(None) => return Err(Failure::new(ACC_E_DONE, "the group has no action")),
                Poll::Pending => drop(inner),
            }
            if !self.signal.wait(deadline) {
                return Err(Failure::new(ACC_E_TIMEOUT, "no action has ended in time"));
            }
        }
    }

    /// Waits until all actions have ended.
    pub fn wait(&self, deadline: Deadline) -> Result<(), Failure> {
        acc::wait(self.group.wait(), deadline.left()).map(drop).map_err(|error| failure(&error))
    }

    /// Waits until all actions have ended, and gives the slots up; at the deadline the group is given up.
    pub fn close(self, deadline: Deadline) -> Result<(), Failure> {
        let Self { group, inner, .. } = self;
        let closed = acc::wait(group.close(), deadline.left());
        drop(inner);
        closed.map(drop).map_err(|error| failure(&error))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A group: many independent actions with one accelerator, on as many slots as their goal needs.

mod action;

pub use action::Action;

use crate::engine::{Handle, Input, NewAction, NewGroup, ended};
use crate::error::Error;
use crate::goal::GroupRequest;
use crate::random::random_id;
use crate::statistics::Statistics;
use crate::step::Reply;
use bytes::Bytes;
use fpga_pool_leases::ids::GroupUuid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Semaphore, oneshot, watch};

/// Bytes of the input of actions that wait or run. [`Group::submit`] waits while there are more.
const QUEUE_BYTES: u32 = 256 << 20;
/// What an action counts at least: no queue of empty actions grows without a bound.
const LEAST_BYTES: u32 = 1 << 10;

/// A group of slots with one queue of actions. Several threads may submit actions at the same time.
///
/// Each action is a whole stream of bytes by itself, of at most one piece; the next free slot of the group runs it,
/// wherever that is. The broker gives the group as many slots as its goal needs, between the minimum and the maximum, and
/// takes slots away from it when others need them: what runs there ends first, and what waited there goes to other slots.
/// An action whose slot is lost runs again on another one, and its output comes once.
///
/// Dropping the group gives it up: actions that have not ended fail with [`Error::Cancelled`].
pub struct Group {
    handle: Handle,
    id: GroupUuid,
    statistics: watch::Receiver<Statistics>,
    submitted: AtomicU64,
    room: Arc<Semaphore>,
}

impl Group {
    pub(crate) fn open(handle: Handle, request: GroupRequest) -> Result<Self, Error> {
        request.check()?;
        let id = GroupUuid(random_id()?);
        let (statistics, shown) = watch::channel(Statistics::new(request.goal));
        handle.send(Input::OpenGroup(Box::new(NewGroup { id, request, statistics })))?;
        let room = Arc::new(Semaphore::new(QUEUE_BYTES as usize));
        Ok(Self { handle, id, statistics: shown, submitted: AtomicU64::new(0), room })
    }

    /// Puts an action into the queue; its output comes by the [`Action`] that is returned. Waits while the group has more
    /// than 256 MiB of input that is not done.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after the pool's end, [`Error::Forked`]. What is wrong with the input or with the group comes
    /// by the action.
    pub async fn submit(&self, input: impl Into<Bytes>) -> Result<Action, Error> {
        let input = input.into();
        let bytes = u32::try_from(input.len()).unwrap_or(u32::MAX).clamp(LEAST_BYTES, QUEUE_BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| ended())?;
        let (output, receiver) = Reply::new();
        self.handle.send(Input::SubmitAction(self.id, NewAction { input, output, room }))?;
        self.submitted.fetch_add(1, Ordering::Relaxed);
        Ok(Action::new(receiver))
    }

    /// Waits until all actions that were submitted before this call have ended, whether with output or with an error.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after the pool's end.
    pub async fn wait(&self) -> Result<Statistics, Error> {
        let submitted = self.submitted.load(Ordering::Relaxed);
        let mut statistics = self.statistics.clone();
        let is_over = |statistics: &Statistics| statistics.ended() >= submitted;
        let statistics = statistics.wait_for(is_over).await.map_err(|_| ended())?;
        Ok(statistics.clone())
    }

    /// What the group has done, what it has, and what it will do; the receiver tells of changes.
    #[must_use]
    pub fn statistics(&self) -> watch::Receiver<Statistics> {
        self.statistics.clone()
    }

    /// Waits until all actions have ended, and gives the slots up.
    ///
    /// # Errors
    /// What ended the group before, for example [`Error::Refused`] if the broker does not admit it.
    pub async fn close(self) -> Result<Statistics, Error> {
        let (closed, when_closed) = oneshot::channel();
        self.handle.send(Input::FinishGroup(self.id, closed))?;
        when_closed.await.unwrap_or_else(|_| Err(ended()))?;
        Ok(self.statistics.borrow().clone())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // In a forked child, and after the engine's end, there is nothing to give up.
        let _ = self.handle.send(Input::CancelGroup(self.id));
    }
}

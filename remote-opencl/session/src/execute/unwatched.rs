//! Commands whose ends nobody waits for. In an in-order queue they end before the command after them, so the client is
//! told of their ends with that command, and they need no callback of the vendor.

use super::Measured;
use crate::commands::{Body, Watched};
use crate::dependencies::{Command, EventId, QueueId, QueueOrder};
use crate::queue::Times;
use fpga_vendor::Enqueued;

/// Most commands of which a client is told with one command.
const MOST: usize = 1024;

/// A command of which the client is told with a later one.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) event: EventId,
    /// Before the queue: see `helper_thread.rs`.
    pub(super) enqueued: Enqueued,
    pub(super) body: Box<Body>,
}

impl Earlier {
    /// Whether the client is told of this command with `next`, the next one of its task. `before` is the number of
    /// such commands before this one.
    pub(super) fn is_told_with(
        &self,
        next: &Command<Box<Body>>,
        queue: QueueId,
        measured: Measured,
        before: usize,
    ) -> bool {
        self.body.watched == Watched::No
            && self.body.queue.order == QueueOrder::InOrder
            && self.enqueued.is_one_event()
            && next.queue == queue
            && before < MOST
            && measured == Measured::Shown
            && self.body.queue.times == Times::Hidden
    }

    /// 0 or the error code of the command, which has ended.
    pub(super) fn status(&self) -> i32 {
        self.enqueued.outcome().map_or_else(|error| error.0, |()| 0)
    }
}

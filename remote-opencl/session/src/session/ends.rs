//! The ends of a session's commands, as the vendor's threads tell them.

use super::Shared;
use crate::dependencies::EventId;
use crate::doze::Left;
use crate::execute::Notify;
use crate::router::{Inbox, Input};
use fpga_board::dispatch::TaskId;
use fpga_board::slots::SessionId;
use std::sync::Arc;

/// Tells a session, and through the dispatcher others, of the ends of its commands.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    pub(super) inbox: Inbox,
    pub(super) shared: Arc<Shared>,
    pub(super) session: SessionId,
}

impl Notify for Ends {
    fn ended(&self, event: EventId, status: i32) {
        // The inbox exists until all commands of the session have ended.
        let _ = self.inbox.send(Input::Ended(event, status));
    }

    fn piece_ended(&self, event: EventId) {
        let _ = self.inbox.send(Input::PieceEnded(event));
    }

    fn told(&self, task: TaskId, event: EventId, status: i32) {
        if self.inbox.doze().leave(event, status) == Left::No {
            let _ = self.inbox.send(Input::EndsLeft);
            return;
        }
        // Others may wait for the slot, so it is not held until the session wakes.
        let dispatcher = &self.shared.config.dispatcher;
        let grants = dispatcher.finished(task);
        for mine in self.shared.router.deliver(grants, self.session, dispatcher) {
            let _ = self.inbox.send(Input::Granted(mine));
        }
    }
}

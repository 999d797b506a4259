//! Marker elision: a marker or a barrier without a wait list, directly behind another command of its in-order
//! queue, ends with that command and is not enqueued to the vendor.
//!
//! A kernel and the marker that the client waits for are then one command. That saves one pass through the
//! vendor's threads, and the end can be told directly.

use crate::commands::{Body, Operation};
use crate::dependencies::{Cause, Command, DEPENDENCY_FAILED, EventId, QueueId};
use crate::report::{Ended, Told};
use std::iter::Peekable;

/// A command that ends with the one before it.
#[derive(Debug)]
pub(super) struct ElidedMarker {
    pub(super) event: EventId,
    operation: &'static str,
    received: u64,
}

/// Takes the commands that end with the one before them, in this in-order queue.
pub(super) fn elide(
    queue: QueueId,
    commands: &mut Peekable<impl Iterator<Item = Command<Box<Body>>>>,
) -> Vec<ElidedMarker> {
    let mut elided = Vec::new();
    while let Some(Command { event, body, .. }) = commands.next_if(|command| {
        let has_no_work = matches!(command.body.operation, Operation::Marker(_) | Operation::Barrier(_));
        has_no_work && command.queue == queue && command.wait.is_empty()
    }) {
        let Body { operation, received_at, .. } = *body;
        elided.push(ElidedMarker { event, operation: operation.name(), received: received_at });
    }
    elided
}

impl ElidedMarker {
    /// The end of this command, by the status of the command before it.
    pub(super) fn ended(&self, status_before: i32, told: Told) -> Ended {
        let status = if status_before < 0 { DEPENDENCY_FAILED } else { status_before };
        let Self { event, operation, received } = *self;
        let (cause, earlier) = (Cause::Command, Vec::new());
        Ended { event, status, moments: None, data: None, operation, received, told, cause, earlier }
    }
}

//! Commands that the vendor need not have: markers and barriers without a wait list, directly behind another command of
//! their in-order queue, end with that one.
//!
//! A kernel and what a client waits for behind it are one command then, which costs one trip through the vendor's threads
//! and can be told directly.

use super::{Ended, Told};
use crate::commands::{Body, Operation};
use crate::ready::{Cause, Command, DEPENDENCY_FAILED, EventId, QueueId};
use std::iter::Peekable;

/// A command that ends with the one before it.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) event: EventId,
    operation: &'static str,
    received: u64,
}

/// Takes those that follow at once in this queue, which keeps its commands' order.
pub(super) fn of(
    queue: QueueId,
    commands: &mut Peekable<impl Iterator<Item = Command<Body>>>,
) -> Vec<Follower> {
    let mut followers = Vec::new();
    while let Some(Command { event, body, .. }) = commands.next_if(|command| {
        let has_no_work = matches!(command.body.operation, Operation::Marker(_) | Operation::Barrier(_));
        has_no_work && command.queue == queue && command.wait.is_empty()
    }) {
        let Body { operation, received_at, .. } = body;
        followers.push(Follower { event, operation: operation.name(), received: received_at });
    }
    followers
}

impl Follower {
    /// It has ended, with the command before it.
    pub(super) fn ended(&self, status_before: i32, told: Told) -> Ended {
        let status = if status_before < 0 { DEPENDENCY_FAILED } else { status_before };
        let Self { event, operation, received } = *self;
        Ended { event, status, moments: None, data: None, operation, received, told, cause: Cause::Command }
    }
}

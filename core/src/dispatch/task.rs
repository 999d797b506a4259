//! What goes into the dispatch and what comes out: tasks, grants, and what was used.

use super::Kind;
use crate::bitstream::Digest;
use crate::slots::{Demand, Load, SessionId, SlotIndex};
use std::sync::Arc;
use std::time::Duration;

/// One task, unique while the device manager lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A tenant: the identity that a session proved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

/// Most queues of a task that are told apart.
pub const MAX_LANES: usize = 64;

/// On which queues of its session a task has commands: tasks of which each has a queue that the other has not may run at
/// the same time, and one may wait for the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lanes {
    /// An out-of-order queue, or too many to tell apart: the task may run beside any other.
    #[default]
    Any,
    /// These in-order queues.
    Of(Vec<u64>),
}

/// A task that wants to start.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// Whose it is.
    pub session: SessionId,
    /// Its id, never used before.
    pub task: TaskId,
    /// For whom.
    pub tenant: Tenant,
    /// What it needs.
    pub demand: Demand,
    /// On which queues of its session it has commands.
    pub lanes: Lanes,
    /// What it runs, for the policies that go by how long such tasks took; nothing where nobody knows.
    pub kind: Option<Kind>,
}

/// A task that may start now.
///
/// Several tasks of a session may run at once. Its commands are enqueued in the order of its grants: while one of
/// them loads, the session's later ones wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub session: SessionId,
    /// Which.
    pub task: TaskId,
    /// The slots that it holds until it is finished.
    pub slots: Vec<SlotIndex>,
    /// What must be loaded before it starts.
    pub load: Vec<Load>,
}

/// What the end of a task brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// How long the task held slots, one entry for each.
    pub usage: Vec<SlotUsage>,
    /// Tasks that may start now.
    pub grants: Vec<Grant>,
    /// The task; nothing if it is unknown.
    pub task: Option<EndedTask>,
}

/// What a task took that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    /// Whose it was.
    pub tenant: Tenant,
    /// From its submission to its start.
    pub waited: Duration,
    /// From its submission to its end.
    pub took: Duration,
}

/// A time in which a slot was held. Those of one slot never overlap, also where tasks of a session share it:
/// their sum is never more than the time that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotUsage {
    /// The slot.
    pub slot: SlotIndex,
    /// The bitstream that the task used there; nothing if its kernels came from source.
    pub bitstream: Option<Digest>,
    /// The task it is charged to.
    pub task: TaskId,
    /// Number of this task's hold on this slot, never used for another: progress and end of it share it.
    pub hold: u64,
    /// Whose task that is.
    pub tenant: Tenant,
    /// From, on the caller's monotonic clock.
    pub from: Duration,
    /// Until.
    pub until: Duration,
}

/// Why a task is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It can never have all its slots at once: the session splits it in command order.
    #[error(
        "the task needs {needed} bitstreams at once and the device has {slots} slots: split it in command order"
    )]
    TooManyBitstreams {
        /// How many different bitstreams it needs.
        needed: usize,
        /// How many slots there are.
        slots: usize,
    },
    /// The id is that of a task that waits or runs.
    #[error("task {} is known already", .0.0)]
    Known(TaskId),
}

impl Lanes {
    /// The lanes of a task with commands on these queues; nothing stands for a queue without an order.
    pub fn of(queues: impl IntoIterator<Item = Option<u64>>) -> Self {
        let mut lanes: Vec<u64> = Vec::new();
        for queue in queues {
            let Some(queue) = queue else { return Self::Any };
            if lanes.contains(&queue) {
                continue;
            }
            if lanes.len() == MAX_LANES {
                return Self::Any;
            }
            lanes.push(queue);
        }
        Self::Of(lanes)
    }

    /// Whether a task with these lanes has a command that no task of the lanes `taken` comes before by the order of a queue.
    pub(super) fn has_one_beside<'a>(&self, taken: &(impl Iterator<Item = &'a Self> + Clone)) -> bool {
        let is_taken =
            |lane: &u64| taken.clone().any(|taken| matches!(taken, Self::Of(of) if of.contains(lane)));
        match self {
            Self::Any => true,
            Self::Of(lanes) => lanes.iter().any(|lane| !is_taken(lane)),
        }
    }
}

impl Tenant {
    /// The tenant of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

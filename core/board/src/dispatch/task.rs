//! The input and output of the dispatch: tasks, grants, and slot usage.

use super::Kind;
use crate::slots::{Demand, SessionId, SlotIndex, SlotLoad};
use fpga_core::bitstream::Digest;
use std::sync::Arc;
use std::time::Duration;

/// Id of a task, unique while the device manager lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A tenant: the identity that a session proved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

/// Maximum number of queues of a task that are told apart.
pub const MAX_LANES: usize = 64;

/// The queues of its session on which a task has commands. Two tasks may run at the same time, and one may wait for
/// the other, if each has a queue that the other does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lanes {
    /// An out-of-order queue, or more than [`MAX_LANES`] queues: the task may run beside any other.
    #[default]
    Any,
    /// The numbers of in-order queues, at most [`MAX_LANES`].
    Of(Vec<u64>),
}

/// A task that is to be started.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// The session that submits the task.
    pub session: SessionId,
    /// Id of the task, never used before.
    pub task: TaskId,
    /// The tenant that the task's device time is charged to.
    pub tenant: Tenant,
    /// The slots and bitstreams that the task needs.
    pub demand: Demand,
    /// The queues of the session on which the task has commands.
    pub lanes: Lanes,
    /// The kind of the task's kernels, for the policies that go by expected time; `None` if the task runs no kernel.
    pub kind: Option<Kind>,
    /// Bytes that the task's commands take in from the client.
    pub bytes: u64,
}

/// A task that may start now.
///
/// Several tasks of a session may run at once. The session's commands are enqueued in the order of its grants: while
/// a task's bitstreams are being loaded, the session's later tasks wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The session of the task.
    pub session: SessionId,
    /// The task's id.
    pub task: TaskId,
    /// The slots that the task holds until it is finished.
    pub slots: Vec<SlotIndex>,
    /// The bitstreams to load before the task starts, and their slots.
    pub load: Vec<SlotLoad>,
}

/// The effects of a task's end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// The time for which the task held slots, one entry for each slot.
    pub usage: Vec<SlotUsage>,
    /// Tasks that may start now.
    pub grants: Vec<Grant>,
    /// The ended task; `None` if its id is unknown.
    pub task: Option<EndedTask>,
}

/// A task that has ended, and its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask {
    /// The session of the task.
    pub session: SessionId,
    /// The tenant of the task.
    pub tenant: Tenant,
    /// The kind of the task's kernels; `None` if the task ran no kernel.
    pub kind: Option<Kind>,
    /// Time from submission to start.
    pub waited: Duration,
    /// Time from submission to end.
    pub took: Duration,
    /// Bytes that the task's commands took in from the client.
    pub bytes: u64,
}

/// A time in which a slot was held. The usages of one slot never overlap, even where tasks of a session share it:
/// their sum is never more than the time that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotUsage {
    /// The slot.
    pub slot: SlotIndex,
    /// The bitstream that the task used there; `None` if its kernels came from source.
    pub bitstream: Option<Digest>,
    /// The task that the time is charged to.
    pub task: TaskId,
    /// Number of this task's hold on this slot, unique to it. Progress and end of the hold carry the same number.
    pub hold: u64,
    /// The tenant of that task.
    pub tenant: Tenant,
    /// Begin, on the caller's monotonic clock.
    pub from: Duration,
    /// End, on the same clock.
    pub until: Duration,
}

/// Reason why a task is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskRefusal {
    /// The task can never have all its slots at once; the session splits it in command order.
    #[error(
        "the task needs {needed} bitstreams at once and the device has {slots} slots: split it in command order"
    )]
    TooManyBitstreams {
        /// Number of different bitstreams that the task needs.
        needed: usize,
        /// Number of slots of the device.
        slots: usize,
    },
    /// The slot is lent for one bitstream, and the task has kernels of none.
    #[error("the slot is lent for one bitstream, and the task's kernels come from none")]
    NoBitstream,
    /// The session may not use its slot any more.
    #[error("the session has lost its slot")]
    NoSlot,
    /// A task with this id waits or runs already.
    #[error("task {} is known already", .0.0)]
    Known(TaskId),
}

impl Lanes {
    /// The lanes of a task with commands on these queues; `None` stands for an out-of-order queue.
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

    /// Whether a task with these lanes has a command that no queue orders behind a task with the lanes `taken`.
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
    /// The tenant with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The tenant's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

//! Runs a task that has its slots: enqueues all its commands to the vendor's queues, without a wait between
//! them (B-2).
//!
//! The vendor's callbacks report completions one by one through the session's channel. The task ends with the
//! last of its commands.

mod direct;
mod ending;
mod enqueue;
mod marker_elision;
mod modelled;
mod starting;
mod unwatched;

use crate::command_ring::RingSender;
use crate::commands::{Body, Operation, Tracing};
use crate::dependencies::EventId;
use crate::health::Health;
use crate::helper_thread::HelperThread;
use crate::model::ModelledBoard;
use crate::printed::Taker;
use crate::queue::Times;
use direct::Direct;
use fpga_board::dispatch::{TaskId, Tenant};
use fpga_vendor::Enqueued;
use marker_elision::ElidedMarker;
use std::collections::HashMap;
use std::sync::Arc;
use unwatched::Earlier;

/// The commands of one session that have been enqueued to the vendor.
#[derive(Debug)]
pub struct Executor<N> {
    running: HashMap<EventId, Running>,
    /// For commands that the vendor does not have, the command with which they end.
    leaders: HashMap<EventId, EventId>,
    outstanding: HashMap<TaskId, Outstanding>,
    /// The ring over which a vendor's thread can tell the client directly.
    ring: Option<RingSender>,
    helper_thread: Arc<HelperThread>,
    measured: Measured,
    notify: N,
    launches: Option<Launches>,
    printed: Option<Taker>,
    model: Option<Arc<ModelledBoard>>,
}

/// The receiver of the outcomes of a session's launches.
#[derive(Debug)]
pub struct Launches {
    /// Health of the device.
    pub health: Health,
    /// Tenant of the session.
    pub tenant: Tenant,
}

/// The commands whose times are measured. Measuring one takes four calls of the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// All commands.
    All,
    /// Commands of queues with profiling.
    Shown,
}

/// Passes the end of a command from the vendor's thread to the session's.
pub trait Notify: Clone + Send + 'static {
    /// Reports that the command has ended with this status. Must not block.
    fn ended(&self, event: EventId, status: i32);
    /// Reports that a piece of the command has ended. Must not block.
    fn piece_ended(&self, event: EventId);
    /// Reports that the only command of a task has ended with this status, of which the client has been told. Must
    /// not block.
    fn told(&self, task: TaskId, event: EventId, status: i32);
}

/// A task with commands that have not ended.
#[derive(Debug)]
struct Outstanding {
    /// Number of commands that have not ended.
    left: usize,
    /// Whether one of its kernels has been measured for the profile of such tasks.
    sampled: bool,
}

#[derive(Debug)]
struct Running {
    task: TaskId,
    enqueued: Enqueued,
    /// Time when the command was enqueued, in ns, if it is measured.
    measured_from: Option<u64>,
    /// Number of pieces of a read that have been reported.
    told: usize,
    direct: Option<Arc<Direct>>,
    /// Kept until the end, since it owns queue, buffers, kernel and arguments.
    body: Box<Body>,
    /// Commands that end with this one.
    elided: Vec<ElidedMarker>,
    /// Unwatched commands before this one, of which the client is told with it.
    earlier: Vec<Earlier>,
}

impl<N: Notify> Executor<N> {
    /// An executor without commands.
    pub fn new(helper_thread: Arc<HelperThread>, measured: Measured, notify: N) -> Self {
        let (running, leaders, outstanding) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self {
            running,
            leaders,
            outstanding,
            ring: None,
            helper_thread,
            measured,
            notify,
            launches: None,
            printed: None,
            model: None,
        }
    }

    /// Reports the outcomes of launches from now on.
    pub fn tell_of_launches(&mut self, launches: Launches) {
        self.launches = Some(launches);
    }

    /// Reports what kernels print from now on.
    pub fn tell_of_text(&mut self, printed: Taker) {
        self.printed = Some(printed);
    }

    /// Lets the vendor's threads tell the client over `ring` from now on.
    pub fn tell_by(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    fn launch_ended(&self, task: TaskId, body: &Body, status: i32) {
        if let (Operation::Launch(_), Some(Launches { health, tenant })) = (&body.operation, &self.launches) {
            health.launch_ended(tenant, task, status);
        }
    }

    /// The tasks that run.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.outstanding.keys().copied()
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    fn is_measured(&self, body: &Body) -> bool {
        self.measured == Measured::All || body.queue.times == Times::Shown || body.tracing == Tracing::On
    }
}

#[cfg(test)]
mod tests;

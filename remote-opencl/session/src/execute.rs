//! Runs a task that has its slots: enqueues all its commands to the vendor's queues, without a wait between
//! them (B-2).
//!
//! The vendor's callbacks report completions one by one through the session's channel. The task ends with the
//! last of its commands.

mod direct;
mod enqueue;
mod marker_elision;
mod modelled;
mod unwatched;

use crate::clock;
use crate::command_ring::RingSender;
use crate::commands::{Body, Operation, Waits};
use crate::dependencies::{
    Cause, Command, DEPENDENCY_FAILED, DependencyTracker, EventId, QueueId, QueueOrder,
};
use crate::health::Health;
use crate::helper_thread::{Expected, HelperThread};
use crate::model::ModelledBoard;
use crate::moments::{Moments, Span};
use crate::queue::{Queue, Times, Waiting};
use crate::quiesce::InUse;
use crate::report::Ended;
use crate::report::Got;
use crate::report::Report;
use crate::report::Told;
use direct::Direct;
use enqueue::enqueue;
use fpga_board::dispatch::{TaskId, Tenant};
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_INLINE_BYTES};
use fpga_vendor::{self as vendor, Enqueued, Event};
use marker_elision::ElidedMarker;
use std::collections::{BTreeMap, HashMap, HashSet};
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
            model: None,
        }
    }

    /// Reports the outcomes of launches from now on.
    pub fn tell_of_launches(&mut self, launches: Launches) {
        self.launches = Some(launches);
    }

    /// Lets the vendor's threads tell the client over `ring` from now on.
    pub fn tell_by(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    /// Enqueues the commands of a task; `used` is its use of the board. Commands that end at once, with an
    /// error, are added to `reports`.
    ///
    /// Returns whether the task has ended with that.
    pub fn start(
        &mut self,
        (task, used): (TaskId, &InUse),
        commands: Vec<Command<Box<Body>>>,
        dependencies: &mut DependencyTracker<Box<Body>>,
        reports: &mut Vec<Report>,
    ) -> bool {
        let mut broken: HashSet<QueueId> = HashSet::new();
        // The last command in each queue.
        let mut queues: BTreeMap<QueueId, (Arc<Queue>, Arc<Event>)> = BTreeMap::new();
        let mut expected = Expected::default();
        let mut outstanding = 0;
        // The end of a single command may be told directly if the client has been told of all earlier ends.
        let overtakes_nothing = self.running.is_empty() && reports.is_empty();
        // Enqueued commands of which the client is told with the next one.
        let mut earlier: Vec<Earlier> = Vec::new();
        let mut commands = commands.into_iter().peekable();
        while let Some(Command { event, queue, order, wait, body }) = commands.next() {
            let elided = if self.is_measured(&body) || order == QueueOrder::OutOfOrder {
                Vec::new()
            } else {
                marker_elision::elide(queue, &mut commands)
            };
            let is_first = overtakes_nothing && outstanding == 0 && earlier.is_empty();
            let is_alone = is_first && commands.peek().is_none();
            let dependency_failed = (order == QueueOrder::InOrder && broken.contains(&queue))
                || wait.iter().any(|event| dependencies.has_failed(*event));
            dependencies.begun(&wait);
            let measured_from = self.is_measured(&body).then(clock::now_ns);
            let enqueued =
                if dependency_failed { Err(DEPENDENCY_FAILED) } else { self.enqueue(&wait, &body) };
            match enqueued {
                Ok(None) => {
                    dependencies.ended(event, 0);
                    reports.push(Report::Ended(Ended::at_once(event, 0)));
                }
                Ok(Some(enqueued)) => {
                    if let (Some(kind), Waiting::Helps) = (body.kind, body.queue.waiting) {
                        self.helper_thread.expect(kind, &mut expected);
                    }
                    let command = Earlier { event, enqueued, body };
                    if let (Some(next), []) = (commands.peek(), elided.as_slice())
                        && command.is_told_with(next, queue, self.measured, earlier.len())
                    {
                        earlier.push(command);
                        continue;
                    }
                    let Earlier { enqueued, body, .. } = command;
                    let all = || [event].into_iter().chain(elided.iter().map(|marker| marker.event));
                    let direct = if is_alone { self.direct(&body, &enqueued, all()) } else { None };
                    self.watch((task, event), &enqueued, body.span, direct.clone());
                    let last = enqueued.event().clone();
                    queues.insert(queue, (body.queue.clone(), last));
                    outstanding += 1 + elided.len();
                    self.leaders.extend(elided.iter().map(|marker| (marker.event, event)));
                    let earlier = std::mem::take(&mut earlier);
                    let running =
                        Running { task, enqueued, measured_from, told: 0, direct, body, elided, earlier };
                    self.running.insert(event, running);
                }
                Err(status) => {
                    if let Some(last) = earlier.pop() {
                        let ended = (last.body.queue.clone(), last.enqueued.event().clone());
                        queues.insert(queue, ended);
                        outstanding += 1;
                        self.tell_together(task, last, std::mem::take(&mut earlier));
                    }
                    self.launch_ended(task, &body, status);
                    broken.insert(queue);
                    let failed = elided.iter().map(|marker| (marker.event, DEPENDENCY_FAILED));
                    for (event, status) in [(event, status)].into_iter().chain(failed) {
                        dependencies.ended(event, status);
                        reports.push(Report::Ended(Ended::at_once(event, status)));
                    }
                }
            }
        }
        for (queue, last) in queues.into_values() {
            if let Err(error) = queue.vendor.flush() {
                tracing::warn!(%error, "A vendor queue can't be flushed");
            }
            if queue.waiting == Waiting::Helps {
                self.helper_thread.wait_for(&expected, (queue, last), used);
            }
        }
        if outstanding > 0 {
            self.outstanding.insert(task, Outstanding { left: outstanding, sampled: false });
        }
        outstanding == 0
    }

    /// Lets the client be told of these unwatched commands when the last of them ends.
    fn tell_together(&mut self, task: TaskId, last: Earlier, earlier: Vec<Earlier>) {
        let Earlier { event, enqueued, body } = last;
        self.watch((task, event), &enqueued, body.span, None);
        let (measured_from, direct, elided) = (None, None, Vec::new());
        let running = Running { task, enqueued, measured_from, told: 0, direct, body, elided, earlier };
        self.running.insert(event, running);
    }

    /// Handles the ends of unwatched commands: reports those that have failed, and returns the others.
    fn earlier_ended(
        &self,
        task: TaskId,
        earlier: &[Earlier],
        dependencies: &mut DependencyTracker<Box<Body>>,
        reports: &mut Vec<Report>,
    ) -> Vec<EventId> {
        let mut succeeded = Vec::with_capacity(earlier.len());
        for command in earlier {
            let (event, status) = (command.event, command.status());
            self.launch_ended(task, &command.body, status);
            dependencies.ended(event, status);
            if status == 0 {
                succeeded.push(event);
            } else {
                reports.push(Report::Ended(Ended::at_once(event, status)));
            }
        }
        succeeded
    }

    fn launch_ended(&self, task: TaskId, body: &Body, status: i32) {
        if let (Operation::Launch(_), Some(Launches { health, tenant })) = (&body.operation, &self.launches) {
            health.launch_ended(tenant, task, status);
        }
    }

    /// Handles the end of a piece of a command: reports the piece to the client.
    pub fn piece_ended(&mut self, event: EventId, reports: &mut Vec<Report>) {
        if let Some(running) = self.running.get_mut(&event) {
            running.tell_pieces(event, reports);
        }
    }

    /// Handles the end of a command. Returns its task if this was the last command of the task.
    pub fn finish(
        &mut self,
        event: EventId,
        status: i32,
        dependencies: &mut DependencyTracker<Box<Body>>,
        reports: &mut Vec<Report>,
    ) -> Option<TaskId> {
        let mut running = self.running.remove(&event)?;
        let status = if status < 0 || running.enqueued.is_one_event() {
            status
        } else {
            running.enqueued.outcome().map_or_else(|error| error.0, |()| 0)
        };
        let data = if status == 0 { running.got(event, reports) } else { None };
        self.launch_ended(running.task, &running.body, status);
        let Running { task, enqueued, measured_from, direct, body, elided, mut earlier, .. } = running;
        if status < 0
            && let Some(last) = earlier.pop()
            && let Some(outstanding) = self.outstanding.get_mut(&task)
        {
            // A command that fails may end before the commands before it.
            outstanding.left += 1;
            self.tell_together(task, last, std::mem::take(&mut earlier));
        }
        let succeeded = self.earlier_ended(task, &earlier, dependencies, reports);
        let told = direct.map_or(Told::No, |direct| direct.told());
        let moments = measured_from.map(|from| match (body.span, enqueued.profile()) {
            (Some(span), _) if status == 0 => span.moments(body.received_at),
            (None, Some(profile)) if status == 0 => {
                body.queue.device.clock.moments(from, profile, clock::now_ns())
            }
            _ => Moments { queued: from, ..Moments::now() },
        });
        dependencies.ended(event, status);
        let (operation, received) = (body.operation.name(), body.received_at);
        let cause = Cause::Command;
        let ended =
            Ended { event, status, moments, data, operation, received, told, cause, earlier: succeeded };
        reports.push(Report::Ended(ended));
        for marker in &elided {
            self.leaders.remove(&marker.event);
            let ended = marker.ended(status, told);
            dependencies.ended(ended.event, ended.status);
            reports.push(Report::Ended(ended));
        }
        let outstanding = self.outstanding.get_mut(&task)?;
        let first =
            earlier.first().map_or((body.kind, &enqueued), |first| (first.body.kind, &first.enqueued));
        if let ((Some(kind), of), Waiting::Helps, false) = (first, body.queue.waiting, outstanding.sampled)
            && let Some(ran) = of.ran()
        {
            outstanding.sampled = true;
            self.helper_thread.measured(kind, ran);
        }
        // Before the queue: see `helper_thread.rs`.
        drop(earlier);
        drop(enqueued);
        outstanding.left -= 1 + elided.len();
        if outstanding.left > 0 {
            return None;
        }
        self.outstanding.remove(&task);
        Some(task)
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
        self.measured == Measured::All || body.queue.times == Times::Shown
    }

    /// The direct report of the command's end; `None` if there is no ring or the report needs more than a status.
    fn direct(
        &self,
        body: &Body,
        enqueued: &Enqueued,
        events: impl Iterator<Item = EventId>,
    ) -> Option<Arc<Direct>> {
        let gives_data = matches!(
            body.operation,
            Operation::Read { into: None, .. }
                | Operation::ReadImage { into: None, .. }
                | Operation::ReadRect { into: None, .. }
        );
        if gives_data || body.queue.times == Times::Shown || !enqueued.is_one_event() {
            return None;
        }
        let ring = self.ring.clone()?;
        Some(Arc::new(Direct::new(ring, events.collect())))
    }

    fn watch(
        &self,
        (task, event): (TaskId, EventId),
        enqueued: &Enqueued,
        span: Option<Span>,
        direct: Option<Arc<Direct>>,
    ) {
        // The last piece is reported with the whole command.
        if let Some((_, parts)) = enqueued.parts().split_last() {
            for part in parts {
                let notify = self.notify.clone();
                // If the callback can't be set, the piece is reported later.
                let _ = vendor::on_end(part, move |_| notify.piece_ended(event));
            }
        }
        let notify = self.notify.clone();
        let tell = move |status| match direct.map(|direct| direct.tell(status)) {
            Some(Told::Yes) => notify.told(task, event, status),
            Some(Told::No) | None => notify.ended(event, status),
        };
        let model = self.model.clone().zip(span);
        let ended = move |status: i32| match model {
            Some((board, span)) if status >= 0 => board.at_end(span, move || tell(status)),
            _ => tell(status),
        };
        if vendor::on_end(enqueued.event(), ended).is_err() {
            // The runtime has no callbacks: waiting here is correct but slow.
            let status = match enqueued.event().wait() {
                Ok(()) => 0,
                Err(error) => error.0,
            };
            self.notify.ended(event, status);
        }
    }

    fn enqueue(&self, wait: &[EventId], body: &Body) -> Result<Option<Enqueued>, i32> {
        let mut list: Vec<Arc<Event>> = wait
            .iter()
            .filter_map(|event| self.running.get(self.leaders.get(event).unwrap_or(event)))
            .map(|running| running.enqueued.event().clone())
            .collect();
        if let Operation::Marker(Waits::ForEvents) | Operation::Barrier(Waits::ForEvents) = body.operation
            && list.is_empty()
            && body.queue.order == QueueOrder::OutOfOrder
        {
            // All events of the wait list have ended. The vendor would take an empty list for all earlier
            // commands of the queue.
            return Ok(None);
        }
        enqueue(body, &mut list).map(Some).map_err(|error| error.0)
    }
}

impl Running {
    fn tell_pieces(&mut self, event: EventId, reports: &mut Vec<Report>) {
        let Operation::Read { size, into: None, .. } = self.body.operation else { return };
        while let Some(data) = self.enqueued.take_piece(self.told) {
            let offset = (self.told * MAX_CHUNK_BYTES) as u64;
            self.told += 1;
            let Some(hold) = &mut self.body.hold else { return };
            let hold = Arc::new(hold.split(data.len() as u64));
            reports.push(Report::Piece { event, length: size as u64, offset, data, hold });
        }
    }

    fn got(&mut self, event: EventId, reports: &mut Vec<Report>) -> Option<Got> {
        let whole = match self.body.operation {
            Operation::ReadImage { size, into: None, .. } => Some(size),
            Operation::ReadRect { extent, into: None, .. } => Some(extent.bytes()),
            _ => None,
        };
        if let Some(size) = whole {
            let bytes = self.enqueued.take_piece(0)?;
            if size <= MAX_INLINE_BYTES {
                return Some(Got::Bytes(bytes));
            }
            // Each piece is a slice of the whole result.
            let hold = Arc::new(self.body.hold.take()?);
            for offset in (0..size).step_by(MAX_CHUNK_BYTES) {
                let data = bytes.slice(offset..size.min(offset + MAX_CHUNK_BYTES));
                let (length, offset, hold) = (size as u64, offset as u64, hold.clone());
                reports.push(Report::Piece { event, length, offset, data, hold });
            }
            return Some(Got::Pieces(size as u64));
        }
        let Operation::Read { size, into: None, .. } = self.body.operation else { return None };
        if size <= MAX_INLINE_BYTES {
            return self.enqueued.take_piece(0).map(Got::Bytes);
        }
        self.tell_pieces(event, reports);
        Some(Got::Pieces(size as u64))
    }
}

#[cfg(test)]
mod tests;

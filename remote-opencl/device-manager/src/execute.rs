//! Running a task that has its slots: all its commands into the vendor's queues, without a wait between them (B-2).
//!
//! Completions come back one by one, by the vendor's callback through the session's channel; the task has ended when
//! all its commands have.

mod direct;
mod enqueue;
mod followers;

use crate::board::Use;
use crate::clock;
use crate::command_ring::RingSender;
use crate::commands::{Body, Operation, Waits};
use crate::dispatcher::{TaskId, Tenant};
use crate::governor::Hold;
use crate::health::Health;
use crate::lender::{Expected, Lender};
use crate::objects::{Moments, Queue, Times, Waiting};
use crate::ready::{Cause, Command, DEPENDENCY_FAILED, EventId, Failed, QueueId, QueueOrder, Ready};
use crate::vendor::{self, Enqueued, Event};
use bytes::Bytes;
use direct::Direct;
use enqueue::enqueue;
use followers::Follower;
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_INLINE_BYTES};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Something to tell the client, in this order.
#[derive(Debug)]
pub enum Report {
    /// A piece of what a read gives, before it has ended.
    Piece {
        /// The event of the read.
        event: EventId,
        /// How long the whole is.
        length: u64,
        /// Where the piece begins.
        offset: u64,
        /// It.
        data: Bytes,
        /// What it is held by.
        hold: Arc<Hold>,
    },
    /// A command has ended.
    Ended(Ended),
}

/// What a read gave.
#[derive(Debug)]
pub enum Got {
    /// These few bytes.
    Bytes(Bytes),
    /// As many, all told in pieces before.
    Pieces(u64),
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its event.
    pub event: EventId,
    /// 0 or the error.
    pub status: i32,
    /// When what happened, if anybody wants to know.
    pub moments: Option<Moments>,
    /// What a read gave.
    pub data: Option<Got>,
    /// What it did, in a word.
    pub operation: &'static str,
    /// When the manager got it; 0 where nobody knows.
    pub received: u64,
    /// Whether the client knows.
    pub told: Told,
    /// What an error goes back to.
    pub cause: Cause,
}

/// Whether the client knows already that a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The vendor's thread has told it.
    Yes,
    /// The session has to.
    No,
}

impl Ended {
    /// One that never reached the device.
    #[must_use]
    pub fn at_once(event: EventId, status: i32) -> Self {
        Self {
            event,
            status,
            moments: Some(Moments::now()),
            data: None,
            operation: "not run",
            received: 0,
            told: Told::No,
            cause: Cause::Command,
        }
    }

    /// One that failed before it was handed over.
    #[must_use]
    pub fn failed(failed: Failed) -> Self {
        let Failed { event, status, cause } = failed;
        Self { cause, ..Self::at_once(event, status) }
    }
}

/// The commands of one session that the vendor has.
#[derive(Debug)]
pub struct Executor<N> {
    running: HashMap<EventId, Running>,
    /// The commands with which others end that the vendor does not have.
    leaders: HashMap<EventId, EventId>,
    outstanding: HashMap<TaskId, Outstanding>,
    /// Where the client can be told directly.
    ring: Option<RingSender>,
    lender: Arc<Lender>,
    measured: Measured,
    notify: N,
    launches: Option<Launches>,
}

/// Who hears how a session's launches end.
#[derive(Debug)]
pub struct Launches {
    /// That of the device.
    pub health: Health,
    /// Whose they are.
    pub tenant: Tenant,
}

/// Which commands' moments are asked for: that takes four calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// All.
    All,
    /// Those of queues that show them.
    Shown,
}

/// How the end of a command gets from the vendor's thread to the session's.
pub trait Notify: Clone + Send + 'static {
    /// The command has ended with this status. Must not block.
    fn ended(&self, event: EventId, status: i32);
    /// A piece of the command has ended. Must not block.
    fn piece_ended(&self, event: EventId);
}

/// A task that has not ended.
#[derive(Debug)]
struct Outstanding {
    /// Its commands that have not.
    left: usize,
    /// Whether one of its kernels has been measured for the next task like it.
    sampled: bool,
}

#[derive(Debug)]
struct Running {
    task: TaskId,
    enqueued: Enqueued,
    /// When it was enqueued, if anybody wants to know when it ran.
    measured_from: Option<u64>,
    /// How many pieces of a read were told.
    told: usize,
    direct: Option<Arc<Direct>>,
    /// Kept until the end: queue, buffers, kernel and arguments.
    body: Body,
    /// They end with it.
    followers: Vec<Follower>,
}

impl<N: Notify> Executor<N> {
    /// Nothing runs.
    pub fn new(lender: Arc<Lender>, measured: Measured, notify: N) -> Self {
        let (running, leaders, outstanding) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { running, leaders, outstanding, ring: None, lender, measured, notify, launches: None }
    }

    /// From now on somebody hears how launches end.
    pub fn tell_of_launches(&mut self, launches: Launches) {
        self.launches = Some(launches);
    }

    /// From now on the client may be told by this ring what has ended.
    pub fn tell_by(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    /// Enqueues the commands of a task that `used` is the place of. What ends at once, by an error, is added to
    /// `reports`.
    ///
    /// Returns whether the task has ended with that.
    pub fn start(
        &mut self,
        (task, used): (TaskId, &Use),
        commands: Vec<Command<Body>>,
        ready: &mut Ready<Body>,
        reports: &mut Vec<Report>,
    ) -> bool {
        let mut broken: HashSet<QueueId> = HashSet::new();
        // With the last command in each.
        let mut queues: BTreeMap<QueueId, (Arc<Queue>, Arc<Event>)> = BTreeMap::new();
        let mut expected = Expected::default();
        let mut outstanding = 0;
        // A single command behind which nothing is that the client doesn't know of: its end overtakes nothing.
        let overtakes_nothing = self.running.is_empty() && reports.is_empty();
        let mut commands = commands.into_iter().peekable();
        while let Some(Command { event, queue, order, wait, body }) = commands.next() {
            let followers = if self.is_measured(&body) || order == QueueOrder::OutOfOrder {
                Vec::new()
            } else {
                followers::of(queue, &mut commands)
            };
            let is_alone = overtakes_nothing && outstanding == 0 && commands.peek().is_none();
            let dependency_failed = (order == QueueOrder::InOrder && broken.contains(&queue))
                || wait.iter().any(|event| ready.has_failed(*event));
            ready.begun(&wait);
            let measured_from = self.is_measured(&body).then(clock::now_ns);
            let enqueued =
                if dependency_failed { Err(DEPENDENCY_FAILED) } else { self.enqueue(&wait, &body) };
            match enqueued {
                Ok(None) => {
                    ready.ended(event, 0);
                    reports.push(Report::Ended(Ended::at_once(event, 0)));
                }
                Ok(Some(enqueued)) => {
                    let all = || [event].into_iter().chain(followers.iter().map(|follower| follower.event));
                    let direct = if is_alone { self.direct(&body, &enqueued, all()) } else { None };
                    self.watch(event, &enqueued, direct.clone());
                    if let (Some(kind), Waiting::Helps) = (body.kind, body.queue.waiting) {
                        self.lender.expect(kind, &mut expected);
                    }
                    let last = enqueued.event().clone();
                    queues.insert(queue, (body.queue.clone(), last));
                    outstanding += 1 + followers.len();
                    self.leaders.extend(followers.iter().map(|follower| (follower.event, event)));
                    let running = Running { task, enqueued, measured_from, told: 0, direct, body, followers };
                    self.running.insert(event, running);
                }
                Err(status) => {
                    self.launch_ended(task, &body, status);
                    broken.insert(queue);
                    let failed = followers.iter().map(|follower| (follower.event, DEPENDENCY_FAILED));
                    for (event, status) in [(event, status)].into_iter().chain(failed) {
                        ready.ended(event, status);
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
                self.lender.lend(&expected, &last, used);
            }
        }
        if outstanding > 0 {
            self.outstanding.insert(task, Outstanding { left: outstanding, sampled: false });
        }
        outstanding == 0
    }

    fn launch_ended(&self, task: TaskId, body: &Body, status: i32) {
        if let (Operation::Launch(_), Some(Launches { health, tenant })) = (&body.operation, &self.launches) {
            health.launch_ended(tenant, task, status);
        }
    }

    /// The vendor says that a piece of a command has ended: the client gets what it gave.
    pub fn piece_ended(&mut self, event: EventId, reports: &mut Vec<Report>) {
        if let Some(running) = self.running.get_mut(&event) {
            running.tell_pieces(event, reports);
        }
    }

    /// The vendor says that a command has ended. Returns the task, if it was its last command.
    pub fn finish(
        &mut self,
        event: EventId,
        status: i32,
        ready: &mut Ready<Body>,
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
        let Running { task, enqueued, measured_from, direct, body, followers, .. } = running;
        let told = direct.map_or(Told::No, |direct| direct.told());
        let moments = measured_from.map(|from| match enqueued.profile() {
            Some(profile) if status == 0 => body.queue.moments(from, profile),
            _ => Moments { queued: from, ..Moments::now() },
        });
        ready.ended(event, status);
        let (operation, received) = (body.operation.name(), body.received_at);
        let cause = Cause::Command;
        reports.push(Report::Ended(Ended { event, status, moments, data, operation, received, told, cause }));
        for follower in &followers {
            self.leaders.remove(&follower.event);
            let ended = follower.ended(status, told);
            ready.ended(ended.event, ended.status);
            reports.push(Report::Ended(ended));
        }
        let outstanding = self.outstanding.get_mut(&task)?;
        if let (Some(kind), Waiting::Helps, false) = (body.kind, body.queue.waiting, outstanding.sampled)
            && let Some(ran) = enqueued.ran()
        {
            outstanding.sampled = true;
            self.lender.measured(kind, ran);
        }
        outstanding.left -= 1 + followers.len();
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

    /// How the end of a command is told directly; `None` where there is more to tell than the end.
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

    fn watch(&self, event: EventId, enqueued: &Enqueued, direct: Option<Arc<Direct>>) {
        // The last piece is told with the whole.
        if let Some((_, parts)) = enqueued.parts().split_last() {
            for part in parts {
                let notify = self.notify.clone();
                // Without the callback the piece is told later.
                let _ = vendor::on_end(part, move |_| notify.piece_ended(event));
            }
        }
        let notify = self.notify.clone();
        let ended = move |status| {
            if let Some(direct) = direct {
                direct.tell(status);
            }
            notify.ended(event, status);
        };
        if vendor::on_end(enqueued.event(), ended).is_err() {
            // A runtime without callbacks: wait here, correct if slow.
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
            // All that it waits for has ended. To the vendor an empty list would mean all before it in the queue.
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
            Operation::ReadRect { extent, into: None, .. } => Some(extent.bytes),
            _ => None,
        };
        if let Some(size) = whole {
            let bytes = self.enqueued.take_piece(0)?;
            if size <= MAX_INLINE_BYTES {
                return Some(Got::Bytes(bytes));
            }
            // Each piece is a slice of all of it.
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

//! The start of a task: its commands are enqueued to the vendor's queues, and the vendor's callbacks are set.

use super::direct::Direct;
use super::enqueue::enqueue;
use super::marker_elision;
use super::unwatched::Earlier;
use super::{Executor, Notify, Outstanding, Running};
use crate::clock;
use crate::commands::{Body, Operation, Waits};
use crate::dependencies::{Command, DEPENDENCY_FAILED, DependencyTracker, EventId, QueueId, QueueOrder};
use crate::helper_thread::Expected;
use crate::moments::Span;
use crate::queue::{Queue, Times, Waiting};
use crate::quiesce::InUse;
use crate::report::{Ended, Report, Told};
use fpga_board::dispatch::TaskId;
use fpga_vendor::{self as vendor, Enqueued, Event};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

impl<N: Notify> Executor<N> {
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
        while let Some(Command { event, queue, order, wait, mut body }) = commands.next() {
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
                if dependency_failed { Err(DEPENDENCY_FAILED) } else { self.enqueue(&wait, &mut body) };
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
    pub(super) fn tell_together(&mut self, task: TaskId, last: Earlier, earlier: Vec<Earlier>) {
        let Earlier { event, enqueued, body } = last;
        self.watch((task, event), &enqueued, body.span, None);
        let (measured_from, direct, elided) = (None, None, Vec::new());
        let running = Running { task, enqueued, measured_from, told: 0, direct, body, elided, earlier };
        self.running.insert(event, running);
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
        if gives_data
            || self.printed.is_some()
            || body.queue.times == Times::Shown
            || !enqueued.is_one_event()
        {
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

    fn enqueue(&self, wait: &[EventId], body: &mut Body) -> Result<Option<Enqueued>, i32> {
        body.take_memory().map_err(|error| error.0)?;
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

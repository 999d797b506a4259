//! The ends of commands: what the client is told, and when a task has ended.

use super::unwatched::Earlier;
use super::{Executor, Notify, Running};
use crate::clock;
use crate::commands::{Body, Operation};
use crate::dependencies::{Cause, DependencyTracker, EventId};
use crate::moments::Moments;
use crate::printed::Taker;
use crate::queue::Waiting;
use crate::report::{Ended, Got, Report, Told};
use fpga_board::dispatch::TaskId;
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_INLINE_BYTES};
use std::sync::Arc;

impl<N: Notify> Executor<N> {
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
        reports.extend(self.printed.as_ref().and_then(Taker::take).map(Report::Printed));
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

//! The later life of a command: it is sent, its data arrives, and it ends once, with its callbacks.

use super::{Callback, Event, Profiling, Uses};
use crate::base::clock::{CommandTimes, ManagerClock, now_ns};
use crate::base::sync::lock;
use crate::cl;
use crate::error::ClError;
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::objects::buffer::note_equal;
use crate::objects::late::TakesLate;
use crate::objects::queue::Queue;
use crate::session::callbacks;
use crate::session::pending_command::{PendingCommand, User};
use crate::wire::outgoing::Upload;
use fpga_protocol::v1::{self, data::Form};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl PendingCommand for Event {
    fn submitted(&self, at: u64) {
        let reached = {
            let mut inner = lock(&self.inner);
            inner.times.submitted = at;
            self.status.store(cl::SUBMITTED, Ordering::Release);
            take_reached(&mut inner.callbacks, cl::SUBMITTED)
        };
        run_callbacks(reached, cl::SUBMITTED);
    }

    fn goes_unwatched(&self) -> bool {
        let launches = matches!(self.command_type, cl::COMMAND_NDRANGE_KERNEL | cl::COMMAND_TASK);
        let is_ordered =
            |queue: &Arc<Queue>| queue.is_in_order() && queue.properties() & cl::QUEUE_PROFILING_ENABLE == 0;
        let mut inner = lock(&self.inner);
        inner.unwatched =
            launches && self.queue.as_ref().is_some_and(is_ordered) && inner.callbacks.is_empty();
        inner.unwatched
    }

    fn receive(&self, length: u64, offset: u64, bytes: &[u8]) -> bool {
        let mut inner = lock(&self.inner);
        let received = inner.received;
        let Some(target) = &mut inner.uses.target else { return false };
        let fits =
            target.len() as u64 == length && received as u64 == offset && target.write(received, bytes);
        if fits {
            inner.received += bytes.len();
        }
        fits
    }

    fn completed(&self, completion: v1::Completion, clock: &ManagerClock) {
        let (sent, heard) = (lock(&self.inner).times.submitted, now_ns());
        let mut status = completion.status.min(cl::COMPLETE);
        if status == cl::COMPLETE && !(self.take_data(completion.data) && self.scatter()) {
            status = ClError::OUT_OF_RESOURCES.0;
        }
        if status == cl::COMPLETE {
            let uses = &lock(&self.inner).uses;
            self.note_equal(uses, uses.target.as_ref().map(HostTarget::addresses));
        }
        let late = lock(&self.inner).uses.late.take();
        let is_of_program = late.is_none();
        if let (true, Some(late)) = (status == cl::COMPLETE, late) {
            late.marker_completed();
        }
        if let (true, true, false, Some(queue)) =
            (is_of_program, status < cl::COMPLETE, completion.by_user_event, &self.queue)
        {
            queue.failures().note(self.id, ClError(status));
        }
        let ran = completion.ended_ns != 0;
        let times = ran.then(|| {
            clock.span(CommandTimes {
                sent,
                queued: completion.queued_ns,
                started: completion.started_ns,
                ended: completion.ended_ns,
                heard,
            })
        });
        self.end(status, times);
    }

    fn fail(&self, error: ClError) {
        self.end(error.0, None);
    }
}

impl User for Event {
    fn has_ended(&self) -> bool {
        self.now() <= cl::COMPLETE
    }

    fn wait_for_end(&self) {
        // The caller waits for the memory, whatever becomes of the command.
        let _ = self.end_status();
    }
}

impl Event {
    /// Stores a read's data. Returns false unless there are exactly as many bytes as the read asked for.
    fn take_data(&self, data: Option<v1::Data>) -> bool {
        let wanted = {
            let mut inner = lock(&self.inner);
            let Uses { target, range, in_place, .. } = &mut inner.uses;
            match (target, range, in_place) {
                (None, ..) => return true,
                (Some(target), _, Some(read)) => return read.copy_to(target),
                (Some(target), Some(range), None) => return range.read_at(0, target),
                (Some(target), None, None) => target.len(),
            }
        };
        let taken = match data.and_then(|data| data.form) {
            Some(Form::Inline(bytes)) => bytes.len() == wanted && self.receive(wanted as u64, 0, &bytes),
            Some(Form::Transfer(transfer)) => transfer.id == self.id,
            Some(Form::Segment(_) | Form::Later(_)) | None => false,
        };
        taken && lock(&self.inner).received == wanted
    }

    /// Copies the bytes of a read to a destination with gaps, if the read has one. Returns false if they don't fit.
    fn scatter(&self) -> bool {
        let Uses { target, scatter, .. } = &mut lock(&self.inner).uses;
        match (target, scatter) {
            (Some(packed), Some(scatter)) => scatter.pitches.scatter(&packed.capture(), &mut scatter.target),
            _ => true,
        }
    }

    /// Notes that the program's memory at these addresses is equal to the content of the command's buffers.
    fn note_equal(&self, uses: &Uses, addresses: Option<Range<usize>>) {
        note_equal(self.command_type, uses.buffers.iter().map(|buffer| &buffer.0), addresses);
    }

    /// Ends the event. Returns false if it had ended before.
    pub(super) fn end(&self, status: i32, times: Option<(u64, u64)>) -> bool {
        let (wakers, callbacks, uses) = {
            let mut inner = lock(&self.inner);
            if self.now() <= cl::COMPLETE {
                return false;
            }
            let now = now_ns();
            let (started, ended) = times.unwrap_or((now, now));
            let submitted = inner.times.submitted.min(started);
            let queued = inner.times.queued.min(submitted);
            inner.times = Profiling { queued, submitted, started, ended: ended.max(started) };
            if let Some(upload) = &inner.uses.upload {
                upload.give_up();
            }
            self.status.store(status, Ordering::Release);
            let callbacks = take_reached(&mut inner.callbacks, cl::COMPLETE);
            (std::mem::take(&mut inner.wakers), callbacks, std::mem::take(&mut inner.uses))
        };
        // Dropping the last use of a buffer runs its destructor callbacks, before the callbacks of the event.
        drop(uses);
        if status < cl::COMPLETE && !callbacks.is_empty() {
            self.failure_seen();
        }
        run_callbacks(callbacks, status);
        if self.session().is_own() {
            self.session().host_order().ended(self.id);
        }
        if let Some(queue) = &self.queue {
            queue.progress().ended(self.id);
        }
        for waker in wakers {
            waker.wake();
        }
        true
    }
}

impl TakesLate for Event {
    fn take_late(&self, bytes: HostSource) -> bool {
        let upload = {
            let mut inner = lock(&self.inner);
            if self.now() <= cl::COMPLETE {
                return true;
            }
            self.note_equal(&inner.uses, bytes.addresses());
            if let Some(range) = &inner.uses.range {
                return range.write_at(0, &bytes);
            }
            let upload = Arc::new(Upload::new(self.id, bytes));
            inner.uses.upload = Some(Arc::clone(&upload));
            upload
        };
        self.session().push_upload(upload);
        true
    }
}

/// Takes the callbacks for `status` and for earlier statuses, in the order of the statuses.
fn take_reached(callbacks: &mut Vec<(i32, Callback)>, status: i32) -> Vec<(i32, Callback)> {
    if callbacks.is_empty() {
        return Vec::new();
    }
    let mut reached: Vec<_> = callbacks.extract_if(.., |(wanted, _)| *wanted >= status).collect();
    reached.sort_by_key(|(wanted, _)| -wanted);
    reached
}

fn run_callbacks(reached: Vec<(i32, Callback)>, status: i32) {
    for (wanted, callback) in reached {
        // An error means that the callback thread couldn't be started, which can't be reported here.
        let _ = callbacks::run(move || callback(if status < 0 { status } else { wanted }));
    }
}

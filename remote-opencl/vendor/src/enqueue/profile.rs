//! The times when a command was queued, submitted, started and ended, as the vendor measured them.

use crate::api::{call, check};
use crate::enqueue::Enqueued;
use crate::handles::{Event, Handle as _};
use fpga_protocol::cl_error::ClResult;
use opencl_sys::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_SUBMIT,
};
use std::ptr;
use std::time::Duration;

/// The times of a command on the vendor's clock, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandProfile {
    /// The command was enqueued.
    pub queued: u64,
    /// The command was given to the device.
    pub submitted: u64,
    /// The command started.
    pub started: u64,
    /// The command ended.
    pub ended: u64,
}

impl CommandProfile {
    /// Replaces the first times if they are not plausible. Some runtimes leave them at 0 for commands without work,
    /// such as markers. The start then counts as the time of queueing, since the difference would otherwise be the
    /// uptime of the node.
    fn plausible(self) -> Self {
        if self.queued != 0 && self.queued <= self.started {
            return self;
        }
        Self { queued: self.started, submitted: self.started, ..self }
    }
}

impl Enqueued {
    /// The vendor's measurement; `None` if there is none.
    #[must_use]
    pub fn profile(&self) -> Option<CommandProfile> {
        let first = self.parts.first().unwrap_or(&self.event);
        let last = self.parts.last().unwrap_or(&self.event);
        let profile = CommandProfile {
            queued: first.moment(CL_PROFILING_COMMAND_QUEUED)?,
            submitted: first.moment(CL_PROFILING_COMMAND_SUBMIT)?,
            started: first.moment(CL_PROFILING_COMMAND_START)?,
            ended: last.moment(CL_PROFILING_COMMAND_END)?,
        };
        Some(profile.plausible())
    }

    /// The duration of the command on the device, as the vendor measured it.
    #[must_use]
    pub fn ran(&self) -> Option<Duration> {
        let started = self.event.moment(CL_PROFILING_COMMAND_START)?;
        Some(Duration::from_nanos(self.event.moment(CL_PROFILING_COMMAND_END)?.saturating_sub(started)))
    }
}

impl Event {
    fn moment(&self, param: u32) -> Option<u64> {
        let read = || {
            let mut moment = 0_u64;
            // SAFETY: the event is live, and the answer is a 64-bit number.
            check(unsafe {
                call!(clGetEventProfilingInfo(
                    self.raw(),
                    param,
                    size_of::<u64>(),
                    (&raw mut moment).cast(),
                    ptr::null_mut()
                ))
            })?;
            Ok(moment)
        };
        let result: ClResult<u64> = read();
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_queuing_moment_was_queued_when_it_started() {
        let whole = CommandProfile { queued: 5, submitted: 6, started: 7, ended: 8 };
        assert_eq!(whole.plausible(), whole);
        let bare = CommandProfile { queued: 0, submitted: 0, ..whole };
        assert_eq!(bare.plausible(), CommandProfile { queued: 7, submitted: 7, started: 7, ended: 8 });
    }
}

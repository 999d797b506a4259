//! When a command was queued, submitted, started and ended, by the vendor's measurement.

use crate::vendor::api::call;
use crate::vendor::handles::Handle as _;
use crate::vendor::{ClResult, Enqueued, Event, check};
use opencl_sys::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_SUBMIT,
};
use std::ptr;
use std::time::Duration;

/// Moments of a command on the vendor's clock, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// Enqueued.
    pub queued: u64,
    /// Given to the device.
    pub submitted: u64,
    /// Started.
    pub started: u64,
    /// Ended.
    pub ended: u64,
}

impl Profile {
    /// Some runtimes leave the first moments of commands without work, such as markers, at 0: these were queued when they
    /// started, or the time between would be that since the machine's start.
    fn plausible(self) -> Self {
        if self.queued != 0 && self.queued <= self.started {
            return self;
        }
        Self { queued: self.started, submitted: self.started, ..self }
    }
}

impl Enqueued {
    /// The vendor's measurement; nothing where it has none.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let first = self.parts.first().unwrap_or(&self.event);
        let last = self.parts.last().unwrap_or(&self.event);
        let profile = Profile {
            queued: first.moment(CL_PROFILING_COMMAND_QUEUED)?,
            submitted: first.moment(CL_PROFILING_COMMAND_SUBMIT)?,
            started: first.moment(CL_PROFILING_COMMAND_START)?,
            ended: last.moment(CL_PROFILING_COMMAND_END)?,
        };
        Some(profile.plausible())
    }

    /// How long it ran by the vendor's measurement.
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
            // SAFETY: the event is live, the answer is a 64-bit number.
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
        let whole = Profile { queued: 5, submitted: 6, started: 7, ended: 8 };
        assert_eq!(whole.plausible(), whole);
        let bare = Profile { queued: 0, submitted: 0, ..whole };
        assert_eq!(bare.plausible(), Profile { queued: 7, submitted: 7, started: 7, ended: 8 });
    }
}

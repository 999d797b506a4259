//! What a lease uses, and when the broker is told.
//!
//! The broker hears of usage with every change of a slot. A lease whose steps never pause changes nothing for as long as
//! it lives, so its steps' ends tell the broker, too, at most once in an interval that the broker chose. No timer is
//! needed: without an end of a step there is nothing to tell. Of a job that runs by itself the broker only has to know
//! that it goes on after its last byte.

use crate::lease::{Usage, Work};
use fpga_core::units::{Millis, MonotonicTime};

/// Counts what a lease uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Meter {
    used: Usage,
    /// `None`: the broker is told at changes of the slot only.
    every: Option<Millis>,
    /// Bytes up to which the broker is not told between two changes of the slot.
    expected_bytes: Option<u64>,
    /// When the lease began, or the last report of its usage was due.
    told_at: MonotonicTime,
}

/// Whether a report is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Yes,
    No,
}

impl Meter {
    /// The meter of a lease that begins.
    pub(super) fn new(work: Work, every: Option<Millis>, now: MonotonicTime) -> Self {
        let expected_bytes = match work {
            Work::Run { bytes } => Some(bytes),
            Work::Group(_) => None,
        };
        Self { used: Usage::default(), every, expected_bytes, told_at: now }
    }

    /// What the lease has used so far.
    pub(super) fn used(&self) -> Usage {
        self.used
    }

    /// Counts what a step has used.
    pub(super) fn count(&mut self, step: Usage, now: MonotonicTime) -> Due {
        self.used.add(step);
        let is_expected = self.expected_bytes.is_some_and(|bytes| self.used.bytes <= bytes);
        match self.every {
            Some(every) if now >= self.told_at + every && !is_expected => {
                self.told_at = now;
                Due::Yes
            }
            _ => Due::No,
        }
    }
}

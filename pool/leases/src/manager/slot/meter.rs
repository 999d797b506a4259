//! What a lease uses, and when the broker is told.
//!
//! The broker hears of usage with every change of a slot. A lease whose steps never pause changes nothing for as long as
//! it lives, so its steps' ends tell the broker, too, at most once in an interval that the broker chose. No timer is
//! needed: without an end of a step there is nothing to tell.

use crate::lease::Usage;
use fpga_core::units::{Millis, MonotonicTime};

/// Counts what a lease uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Meter {
    used: Usage,
    /// `None`: the broker is told at changes of the slot only.
    every: Option<Millis>,
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
    pub(super) fn new(every: Option<Millis>, now: MonotonicTime) -> Self {
        Self { used: Usage::default(), every, told_at: now }
    }

    /// What the lease has used so far.
    pub(super) fn used(&self) -> Usage {
        self.used
    }

    /// Counts what a step has used.
    pub(super) fn count(&mut self, step: Usage, now: MonotonicTime) -> Due {
        self.used.add(step);
        match self.every {
            Some(every) if now >= self.told_at + every => {
                self.told_at = now;
                Due::Yes
            }
            _ => Due::No,
        }
    }
}

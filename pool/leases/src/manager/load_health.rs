//! Which bitstreams a slot does not take any more, since they failed to load.
//!
//! A bitstream that fails three times in a row is bad; when two bitstreams become bad without a success between them,
//! the slot itself is.

use crate::timing;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use std::collections::VecDeque;

/// Number of failed loads in a row after which a bitstream is bad.
const FAILURES: u32 = 3;
/// Number of bitstreams that become bad in a row after which the slot is bad.
const BAD_BITSTREAMS: u32 = 2;
/// Number of bad bitstreams that are remembered. One that is forgotten costs three more failed loads.
const REMEMBERED: usize = 16;

/// What a failed load says of the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The slot takes other bitstreams.
    Usable,
    /// The slot is bad.
    Bad,
}

/// The failed loads of a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LoadHealth {
    /// The bitstream that failed last, and how often in a row.
    failing: Option<(Digest, u32)>,
    /// Number of bitstreams that became bad since the last success.
    bad_in_a_row: u32,
    /// Bad bitstreams, the oldest first, and when each may try once more.
    bad: VecDeque<(Digest, MonotonicTime)>,
}

impl LoadHealth {
    /// Whether a bitstream is refused. One that has been bad for a minute is not: its next load is the probe.
    pub(super) fn refuses(&self, digest: &Digest, now: MonotonicTime) -> bool {
        self.bad.iter().any(|(bad, until)| bad == digest && now < *until)
    }

    pub(super) fn loaded(&mut self, digest: &Digest) {
        self.bad.retain(|(bad, _)| bad != digest);
        self.failing = None;
        self.bad_in_a_row = 0;
    }

    pub(super) fn failed(&mut self, digest: Digest, now: MonotonicTime) -> Verdict {
        let was_bad = self.bad.iter().any(|(bad, _)| *bad == digest);
        let before = self.failing.filter(|(failing, _)| *failing == digest).map_or(0, |(_, times)| times);
        if !was_bad && before + 1 < FAILURES {
            self.failing = Some((digest, before + 1));
            return Verdict::Usable;
        }
        self.failing = None;
        self.bad.retain(|(bad, _)| *bad != digest);
        self.bad.push_back((digest, now + timing::PROBE));
        if self.bad.len() > REMEMBERED {
            self.bad.pop_front();
        }
        if !was_bad {
            self.bad_in_a_row += 1;
        }
        if self.bad_in_a_row >= BAD_BITSTREAMS { Verdict::Bad } else { Verdict::Usable }
    }

    /// Forgets all failures: a probe of the slot succeeded.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: MonotonicTime = MonotonicTime::START;

    fn digest(number: u8) -> Digest {
        Digest::from_bytes([number; 32])
    }

    #[test]
    fn a_bitstream_is_bad_after_three_failures_in_a_row_and_may_try_again_a_minute_later() {
        let mut health = LoadHealth::default();
        for _ in 0..2 {
            health.failed(digest(1), NOW);
            health.failed(digest(1), NOW);
            assert!(!health.refuses(&digest(1), NOW));
            health.loaded(&digest(1));
        }
        for _ in 0..3 {
            assert_eq!(health.failed(digest(1), NOW), Verdict::Usable);
        }
        assert!(health.refuses(&digest(1), NOW) && !health.refuses(&digest(2), NOW));
        let later = NOW + timing::PROBE;
        assert!(!health.refuses(&digest(1), later));
        health.failed(digest(1), later);
        assert!(health.refuses(&digest(1), later));
    }

    #[test]
    fn a_slot_is_bad_when_two_bitstreams_become_bad_without_a_success_between_them() {
        let mut health = LoadHealth::default();
        let mut fail = |number| (0..3).map(|_| health.failed(digest(number), NOW)).last().unwrap();
        assert_eq!(fail(1), Verdict::Usable);
        assert_eq!(fail(2), Verdict::Bad);
        let mut health = LoadHealth::default();
        for number in 1..100 {
            let last = (0..3).map(|_| health.failed(digest(number), NOW)).last().unwrap();
            assert_eq!(last, Verdict::Usable);
            health.loaded(&digest(0));
            assert!(health.bad.len() <= REMEMBERED);
        }
    }
}

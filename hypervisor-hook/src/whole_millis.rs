//! Conversion of durations to whole milliseconds without loss of time, for durations that are mostly shorter than 1
//! ms.
//!
//! An event carries whole milliseconds (S-5). Ten thousand tasks of 50 µs a second keep a board half busy; each
//! rounded alone would report nothing.

use fpga_core::units::Millis;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Converts durations to whole milliseconds and carries each remainder into the next duration, so that the sums agree
/// to within a millisecond. Use one per device; threads may share it.
#[derive(Debug, Default)]
pub struct WholeMillis {
    /// All durations so far, in nanoseconds, modulo 2^64 (584 years).
    nanos: AtomicU64,
}

impl WholeMillis {
    /// The whole milliseconds of `duration` and of the remainders of earlier durations.
    pub fn take(&self, duration: Duration) -> Millis {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (whole, rest) = (nanos / NANOS_PER_MILLI, nanos % NANOS_PER_MILLI);
        let before = self.nanos.fetch_add(rest, Ordering::Relaxed);
        let carried = before.wrapping_add(rest) / NANOS_PER_MILLI - before / NANOS_PER_MILLI;
        Millis(whole + carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_tasks_add_up_to_the_time_they_took() {
        let millis = WholeMillis::default();
        let sum: u64 = (0..10_000).map(|_| millis.take(Duration::from_micros(50)).0).sum();
        assert_eq!(sum, 500);
        assert_eq!(millis.take(Duration::from_micros(12_999)), Millis(12));
        assert_eq!(millis.take(Duration::from_micros(1)), Millis(1));
    }
}

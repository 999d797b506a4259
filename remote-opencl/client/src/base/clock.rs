//! The client's clock, and its offset from a manager's clock.
//!
//! The clock is monotonic like `CLOCK_MONOTONIC`, but its epoch is the Unix epoch, since programs print its values
//! as times of day.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Current time in ns.
pub(crate) fn now_ns() -> u64 {
    static EPOCH: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, ns) = EPOCH.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (Instant::now(), u64::try_from(since.as_nanos()).unwrap_or(0))
    });
    ns.saturating_add(u64::try_from(instant.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The difference between the client's and a manager's clock in ns. It is fixed for a session, so that durations
/// stay exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset(i128);

impl Offset {
    /// The offset, given that a message with the manager's time `manager_ns` was received at `heard_ns`. The offset
    /// is too large by the message's travel time, so no command seems to start before it was sent.
    pub(crate) fn new(manager_ns: u64, heard_ns: u64) -> Self {
        Self(i128::from(heard_ns) - i128::from(manager_ns))
    }

    /// Converts a time on the manager's clock to the client's clock.
    pub(crate) fn apply(self, manager_ns: u64) -> u64 {
        u64::try_from(i128::from(manager_ns) + self.0).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_keeps_differences_exact() {
        let offset = Offset::new(1_000, 5_000_000);
        assert_eq!(offset.apply(3_500) - offset.apply(1_500), 2_000);
        assert_eq!(offset.apply(1_000), 5_000_000);
    }

    #[test]
    fn a_moment_before_the_epoch_is_clamped() {
        assert_eq!(Offset::new(5_000, 1_000).apply(10), 0);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let first = now_ns();
        assert!(now_ns() >= first);
    }
}

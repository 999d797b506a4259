//! The node's monotonic clock, in ns. The manager and its tenant processes share it, so times of different
//! processes can be compared.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time now. It is never 0, which stands for an unknown time.
#[must_use]
pub fn now_ns() -> u64 {
    // The clock exists since Linux 2.6, and the call takes no pointer of the caller.
    let since_boot = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    // Exceeds 64 bits after 584 years.
    u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in ns, as far as 64 bits can count.
#[must_use]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

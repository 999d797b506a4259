//! The node's monotonic clock, in ns: one for the manager and for the processes of its tenants, so that the moments that
//! they tell can be compared.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Now: never 0, which stands for no moment.
#[must_use]
pub fn now_ns() -> u64 {
    // Linux has had this clock since 2.6, and the call takes no pointer of ours.
    let since_boot = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    // Exceeds 64 bits after 584 years.
    u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX)
}

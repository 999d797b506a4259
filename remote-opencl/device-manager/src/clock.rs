//! The manager's monotonic clock, in ns since the first look at it plus one second, so that 0 never is a moment.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
const FIRST: Duration = Duration::from_secs(1);

/// Now.
#[must_use]
pub fn now_ns() -> u64 {
    let elapsed = START.elapsed() + FIRST;
    // Exceeds 64 bits after 584 years.
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

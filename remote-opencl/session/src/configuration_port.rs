//! The configuration port of a board: one bitstream is loaded at a time, whichever slot and dispatch it is for.
//!
//! Loads of boards with several slots are simulated, so the port only keeps the moment at which it is free again.

use crate::clock::{self, nanos};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The port. Clones share it. Times are in ns of the manager's clock.
#[derive(Debug, Clone, Default)]
pub struct ConfigurationPort(Arc<Mutex<u64>>);

/// The time of a load at the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadTime {
    /// When the load begins.
    pub from: u64,
    /// When the load ends.
    pub until: u64,
}

impl ConfigurationPort {
    /// Reserves the port for a load of this length, after the loads that have been reserved before and not before
    /// `earliest`. A load that takes no time does not wait.
    #[must_use]
    pub fn reserve(&self, earliest: u64, length: Duration) -> LoadTime {
        if length.is_zero() {
            return LoadTime { from: earliest, until: earliest };
        }
        let mut free_at = self.0.lock();
        let from = earliest.max(*free_at);
        let until = from.saturating_add(nanos(length));
        *free_at = until;
        LoadTime { from, until }
    }
}

impl ConfigurationPort {
    /// Waits for the port, and for a load of this length.
    pub async fn load(&self, length: Duration) {
        let now = clock::now_ns();
        let (_, until) = self.reserve(now, length).after(now);
        tokio::time::sleep(until).await;
    }
}

impl LoadTime {
    /// Time from `now` until the load begins, and until it ends.
    #[must_use]
    pub fn after(self, now: u64) -> (Duration, Duration) {
        let wait = |moment: u64| Duration::from_nanos(moment.saturating_sub(now));
        (wait(self.from), wait(self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_follow_one_another_and_those_without_time_wait_for_none() {
        let port = ConfigurationPort::default();
        let ten = Duration::from_nanos(10);
        assert_eq!(port.reserve(100, ten), LoadTime { from: 100, until: 110 });
        assert_eq!(port.reserve(105, ten), LoadTime { from: 110, until: 120 });
        assert_eq!(port.reserve(105, Duration::ZERO), LoadTime { from: 105, until: 105 });
        let last = port.reserve(300, ten);
        assert_eq!(last, LoadTime { from: 300, until: 310 }, "the port was idle");
        assert_eq!(last.after(295), (Duration::from_nanos(5), Duration::from_nanos(15)));
    }
}

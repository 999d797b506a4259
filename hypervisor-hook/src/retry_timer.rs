//! When a failed call is tried again: after growing pauses with jitter, and never before the collector asked for it.

use fpga_net::backoff::Backoff;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// The part of a pause that passes: from half of it to all of it, so that reporters that lost one collector don't come
/// back together.
const SPREAD: Range<f64> = 0.5..1.0;

/// The pauses between the attempts of one kind of call.
#[derive(Debug)]
pub(crate) struct RetryTimer {
    backoff: Backoff,
    /// Time of the next attempt; `None` after an attempt that did not fail.
    until: Option<Instant>,
}

impl RetryTimer {
    /// Pauses from `min` to `max`.
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self { backoff: Backoff::new(min, max.max(min)), until: None }
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.until.is_some()
    }

    /// Time until the next attempt; zero if it may be made now.
    pub(crate) fn left(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Records a failed attempt, after which the collector asked for a pause of `asked`.
    pub(crate) fn failed(&mut self, asked: Option<Duration>) {
        // The backoff is added, so that reporters don't all come back at the same moment.
        self.until = Some(Instant::now() + asked.unwrap_or_default() + self.backoff.pause(SPREAD));
    }

    /// Records an attempt that did not fail.
    pub(crate) fn succeeded(&mut self) {
        self.until = None;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_differ() {
        let mut timer = RetryTimer::new(Duration::from_millis(50), Duration::from_secs(2));
        let pauses: Vec<_> = (0..20).map(|_| timer.backoff.pause(SPREAD)).collect();
        assert!(pauses[0] >= Duration::from_millis(25) && pauses[0] < Duration::from_millis(50));
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| *pause >= Duration::from_secs(1) && *pause < Duration::from_secs(2))
        );
        assert!(pauses[10..].windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn after_a_success_pauses_are_short_again() {
        let mut timer = RetryTimer::new(Duration::from_millis(50), Duration::from_secs(2));
        assert!(!timer.is_failing() && timer.left().is_zero());
        for _ in 0..10 {
            timer.failed(Some(Duration::from_secs(30)));
        }
        assert!(timer.is_failing() && timer.left() > Duration::from_secs(30));
        timer.succeeded();
        assert!(!timer.is_failing() && timer.left().is_zero());
        timer.failed(None);
        assert!(timer.left() < Duration::from_millis(50));
    }
}

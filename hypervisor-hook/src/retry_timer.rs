//! When a failed call is tried again: after growing pauses with jitter, and never before the collector asked for it.

use std::time::Duration;
use tokio::time::Instant;

/// The pauses between the attempts of one kind of call.
#[derive(Debug)]
pub(crate) struct RetryTimer {
    backoff: Backoff,
    /// Time of the next attempt; `None` after an attempt that did not fail.
    until: Option<Instant>,
}

/// Growing pauses with jitter.
#[derive(Debug)]
struct Backoff {
    min: Duration,
    max: Duration,
    pause: Duration,
    random: u64,
}

impl RetryTimer {
    /// Pauses from `min` to `max`; `seed` makes those of different reporters differ.
    pub(crate) fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self { backoff: Backoff::new(min, max, seed), until: None }
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
        self.until = Some(Instant::now() + asked.unwrap_or_default() + self.backoff.next());
    }

    /// Records an attempt that did not fail.
    pub(crate) fn succeeded(&mut self) {
        self.until = None;
        self.backoff.pause = self.backoff.min;
    }
}

impl Backoff {
    fn new(min: Duration, max: Duration, seed: u64) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self { min, max: max.max(min), pause: min, random: seed | 1 }
    }

    /// Between half of the pause and all of it, so that reporters that lost one collector don't come back together.
    fn next(&mut self) -> Duration {
        // xorshift64 is good enough for jitter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = self.pause / 2;
        let span = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        let pause = half + Duration::from_nanos(self.random % span);
        self.pause = (self.pause * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_differ() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 7);
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
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
        let mut timer = RetryTimer::new(Duration::from_millis(50), Duration::from_secs(2), 7);
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

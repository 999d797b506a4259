//! Pauses before further attempts, which grow with every failure and differ between processes.

use crate::jitter::Jitter;
use std::ops::Range;
use std::time::Duration;

/// Growing pauses with jitter.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    jitter: Jitter,
}

impl Backoff {
    /// Pauses from `first` on, which double with every failure, up to `longest`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, jitter: Jitter::new() }
    }

    /// Whether the last attempt succeeded, or none was made.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.next == self.first
    }

    /// Begins with the first pause again, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The pause after a failure, multiplied by a random factor in `spread`.
    pub fn pause(&mut self, spread: Range<f64>) -> Duration {
        let factor = spread.start + self.jitter.fraction() * (spread.end - spread.start);
        let pause = self.next.mul_f64(factor);
        self.next = self.next.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_millis(300));
        let mut backoff = Backoff::new(first, longest);
        assert!(backoff.is_reset());
        for most in [100, 200, 300, 300] {
            let pause = backoff.pause(0.5..1.0);
            assert!(
                pause >= Duration::from_millis(most / 2) && pause < Duration::from_millis(most),
                "{pause:?}"
            );
            assert!(!backoff.is_reset());
        }
        backoff.reset();
        assert!(backoff.is_reset() && backoff.pause(1.0..1.0) == first);
    }
}

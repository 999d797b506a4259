//! Limit of reported bytes per second, as a token bucket. A request beyond it is refused before it is parsed, with
//! the time after which to try again. The project's reporters merge their events meanwhile, so no time is lost.

use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A bucket that holds the bytes of one second.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    bytes: f64,
    at: Instant,
}

impl Rate {
    /// A limit of `per_second` bytes per second, of which one second's bytes may come at once.
    pub fn new(per_second: u32, now: Instant) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, bucket: Mutex::new(Bucket { bytes: per_second, at: now }) }
    }

    /// Whether `bytes` could be taken now. `Err` has the time after which to try again.
    pub fn check(&self, bytes: u64, now: Instant) -> Result<(), Duration> {
        self.missing(&self.filled(now), bytes)
    }

    /// Takes `bytes`. `Err` has the time after which to try again. A body larger than the bucket is taken when the
    /// bucket is full, and later ones wait until it is paid for.
    pub fn take(&self, bytes: u64, now: Instant) -> Result<(), Duration> {
        let mut bucket = self.filled(now);
        self.missing(&bucket, bytes)?;
        bucket.bytes -= as_float(bytes);
        Ok(())
    }

    /// The bucket, filled with the bytes for the time since its last use.
    fn filled(&self, now: Instant) -> MutexGuard<'_, Bucket> {
        let mut bucket = self.bucket.lock();
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.bytes = (bucket.bytes + passed * self.per_second).min(self.per_second);
        bucket.at = bucket.at.max(now);
        bucket
    }

    fn missing(&self, bucket: &Bucket, bytes: u64) -> Result<(), Duration> {
        let missing = as_float(bytes).min(self.per_second) - bucket.bytes;
        if missing <= 0.0 { Ok(()) } else { Err(Duration::from_secs_f64(missing / self.per_second)) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "bodies are shorter than 16 MiB")]
fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_s_worth_passes_at_once_and_the_rest_in_its_time() {
        let begin = Instant::now();
        let rate = Rate::new(1000, begin);
        assert_eq!(rate.take(600, begin), Ok(()));
        assert_eq!(rate.take(400, begin), Ok(()));
        assert_eq!(rate.take(500, begin), Err(Duration::from_millis(500)));
        assert_eq!(rate.check(500, begin), Err(Duration::from_millis(500)));
        let later = begin + Duration::from_millis(500);
        assert_eq!(rate.check(500, later), Ok(()), "who only asks takes nothing");
        assert_eq!(rate.take(500, later), Ok(()));
        assert!(rate.take(1, later).is_err());
        // A long rest fills the bucket with one second's bytes only.
        let rested = later + Duration::from_secs(60);
        assert_eq!(rate.take(1000, rested), Ok(()));
        assert!(rate.take(1, rested).is_err());
    }

    #[test]
    fn what_is_larger_than_a_second_s_worth_passes_and_is_paid_for_later() {
        let begin = Instant::now();
        let rate = Rate::new(1000, begin);
        assert_eq!(rate.take(3000, begin), Ok(()));
        assert_eq!(rate.take(1, begin + Duration::from_secs(2)), Err(Duration::from_millis(1)));
        assert_eq!(rate.take(1000, begin + Duration::from_secs(3)), Ok(()));
        assert_eq!(rate.take(u64::MAX, begin), Err(Duration::from_secs(1)), "time never goes back");
    }
}

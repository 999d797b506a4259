//! Random fractions, to spread actions of many processes over time.

use std::hash::{BuildHasher, Hasher};

/// A source of pseudo-random fractions, not for secrets.
#[derive(Debug)]
pub struct Jitter(u64);

impl Default for Jitter {
    fn default() -> Self {
        Self::new()
    }
}

impl Jitter {
    /// A source whose seed differs per process and call.
    #[must_use]
    pub fn new() -> Self {
        Self(std::hash::RandomState::new().build_hasher().finish() | 1)
    }

    /// The next fraction, from 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        // xorshift64 is good enough for jitter.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are enough")]
        let fraction = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

//! Chance, for what must not happen everywhere at once.

use std::hash::{BuildHasher, Hasher};

/// A source of fractions. Good enough to move things apart, no good for secrets.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// One of its own per process and use.
    pub fn new() -> Self {
        Self(std::hash::RandomState::new().build_hasher().finish() | 1)
    }

    /// Between 0 and 1.
    pub fn fraction(&mut self) -> f64 {
        // xorshift64: jitter needs no better.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are enough")]
        let fraction = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}

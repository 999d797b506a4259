//! Random choices for tests and benchmarks.

/// Random choices that a seed repeats.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The choices of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Other choices of the same seed, for the client with this number.
    #[must_use]
    pub fn of_client(&self, client: u64) -> Self {
        Self::new(self.0.wrapping_add(client))
    }

    /// A random number in `0..below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below.max(1)
    }

    /// A random element of `all`; `None` if there are none.
    #[must_use]
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(all.len()).ok()?;
        all.get(usize::try_from(self.below(count)).ok()?)
    }
}

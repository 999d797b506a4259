//! Random numbers that are the same on every machine and in every version: ChaCha8 with a fixed seed, and
//! distributions computed with `libm` instead of the platform's functions.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The stream `stream` of `seed`. Streams of the same seed are independent of each other.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// A uniformly distributed number.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniformly distributed number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A uniformly distributed number in [0, `count`); 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        let wide = u128::from(self.bits()) * (count as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// An exponentially distributed number with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// A normally distributed number with mean 0 and standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_for_ever() {
        let mut random = Random::new(1, 0);
        let first = [random.bits(), random.bits()];
        let mut again = Random::new(1, 0);
        assert_eq!(first, [again.bits(), again.bits()]);
        assert_ne!(first[0], Random::new(1, 1).bits());
        assert_ne!(first[0], Random::new(2, 0).bits());
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut random = Random::new(7, 0);
        let n = 200_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.03);
        assert!(mean(&mut || random.normal()).abs() < 0.01);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || random.below(10) as f64) - 4.5).abs() < 0.05);
    }
}

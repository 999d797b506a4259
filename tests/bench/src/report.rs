//! Statistics of samples.

use std::time::Duration;

/// Samples in ascending order.
#[derive(Debug, Clone, Default)]
pub struct Sorted(Vec<Duration>);

impl Sorted {
    /// Sorts samples.
    pub fn new(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    /// Number of samples.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The least sample that `percent` of the samples don't exceed; zero if there are none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    /// Median, 99th percentile and maximum, in milliseconds, as text.
    pub fn told(&self) -> String {
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent).as_secs_f64() * 1e3);
        format!("p50 {p50:>8.2} ms  p99 {p99:>8.2} ms  max {max:>8.2} ms  ({} samples)", self.len())
    }
}

/// The median of `figures`; NaN if there are none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[n / 2],
        n => f64::midpoint(figures[n / 2 - 1], figures[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples = Sorted::new((1..=200).rev().map(Duration::from_millis).collect());
        for (percent, millis) in [(0, 1), (50, 100), (99, 198), (100, 200)] {
            assert_eq!(samples.percentile(percent), Duration::from_millis(millis));
        }
        assert_eq!(Sorted::default().percentile(99), Duration::ZERO);
        assert!((median(vec![3.0, 1.0, 2.0, 10.0]) - 2.5).abs() < 1e-9);
    }
}

//! Distributions of job sizes, exponential (short tail) and bounded power law (long tail), with their moments in
//! closed form (P-5).
//!
//! Logarithms and powers are computed by `libm`, so that results are the same on every machine.

/// A distribution of job sizes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes(Kind);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// `min` plus an exponential part with mean `over`.
    Exponential { min: f64, over: f64 },
    /// Density proportional to x^(−alpha−1) between `min` and `max`.
    Power { min: f64, max: f64, alpha: f64 },
}

/// The reason why parameters do not define a distribution.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SizesError {
    /// Invalid parameters of [`Sizes::exponential`].
    #[error("exponential sizes need a least size >= 0 and a mean above it, not {min} and {mean}")]
    Exponential {
        /// Least size.
        min: f64,
        /// Mean size.
        mean: f64,
    },
    /// Invalid parameters of [`Sizes::power_law`].
    #[error("power-law sizes need 0 < min < max and alpha > 0, not {min}, {max} and {alpha}")]
    Power {
        /// Least size.
        min: f64,
        /// Largest size.
        max: f64,
        /// Exponent.
        alpha: f64,
    },
}

impl Sizes {
    /// Sizes of at least `min` with this mean; the part above `min` is exponential.
    ///
    /// # Errors
    /// [`SizesError::Exponential`] unless 0 ≤ `min` < `mean` and the mean is finite.
    pub fn exponential(min: f64, mean: f64) -> Result<Self, SizesError> {
        if min >= 0.0 && mean > min && mean.is_finite() {
            Ok(Self(Kind::Exponential { min, over: mean - min }))
        } else {
            Err(SizesError::Exponential { min, mean })
        }
    }

    /// Sizes between `min` and `max` with the tail exponent `alpha`; a smaller exponent makes a longer tail.
    ///
    /// # Errors
    /// [`SizesError::Power`] unless 0 < `min` < `max`, `alpha` > 0 and both are finite.
    pub fn power_law(min: f64, max: f64, alpha: f64) -> Result<Self, SizesError> {
        if min > 0.0 && max > min && max.is_finite() && alpha > 0.0 && alpha.is_finite() {
            Ok(Self(Kind::Power { min, max, alpha }))
        } else {
            Err(SizesError::Power { min, max, alpha })
        }
    }

    /// The least size.
    #[must_use]
    pub fn least(&self) -> f64 {
        match self.0 {
            Kind::Exponential { min, .. } | Kind::Power { min, .. } => min,
        }
    }

    /// The mean size.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.moment_between(1, self.least(), f64::INFINITY)
    }

    /// The share of jobs with sizes between `from` and `to`.
    #[must_use]
    pub fn share_between(&self, from: f64, to: f64) -> f64 {
        self.moment_between(0, from, to)
    }

    /// `∫ xᵒ f(x) dx` from `from` to `to`, for an order o of 0, 1 or 2 (a greater one counts as 2).
    #[must_use]
    pub fn moment_between(&self, order: u32, from: f64, to: f64) -> f64 {
        if to <= from {
            return 0.0;
        }
        match self.0 {
            Kind::Exponential { min, over } => {
                // The integral from x to infinity.
                let above = |x: f64| {
                    let x = x.max(min);
                    let tail = libm::exp((min - x) / over);
                    if tail <= 0.0 {
                        return 0.0;
                    }
                    let y = x + over;
                    tail * match order {
                        0 => 1.0,
                        1 => y,
                        _ => y * y + over * over,
                    }
                };
                above(from) - above(to)
            }
            Kind::Power { min, max, alpha } => {
                let scale = alpha * libm::pow(min, alpha) / (1.0 - libm::pow(min / max, alpha));
                let exponent = f64::from(order.min(2)) - alpha;
                let below = |x: f64| {
                    let x = x.clamp(min, max);
                    if exponent.abs() < 1e-12 { libm::log(x) } else { libm::pow(x, exponent) / exponent }
                };
                scale * (below(to) - below(from))
            }
        }
    }

    /// The size below which the share `share` (0 to 1) of all jobs lies.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, 1.0 - f64::EPSILON);
        match self.0 {
            Kind::Exponential { min, over } => min - over * libm::log1p(-share),
            Kind::Power { min, max, alpha } => {
                let covered = 1.0 - libm::pow(min / max, alpha);
                min * libm::pow(1.0 - share * covered, -1.0 / alpha)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Sizes; 4] {
        [
            Sizes::exponential(0.0, 3.0).unwrap(),
            Sizes::exponential(2.0, 5.0).unwrap(),
            Sizes::power_law(1.0, 1000.0, 1.1).unwrap(),
            Sizes::power_law(2.0, 50.0, 1.0).unwrap(),
        ]
    }

    #[test]
    fn moments_agree_with_numeric_integration_over_quantiles() {
        for sizes in all() {
            let (from, to) = (sizes.quantile(0.2), sizes.quantile(0.9));
            let steps = 200_000;
            for order in 0..=2_u32 {
                // ∫ x(u)ᵒ du over the middle of each step of u.
                let sum: f64 = (0..steps)
                    .map(|step| {
                        let size = sizes.quantile(0.2 + 0.7 * (f64::from(step) + 0.5) / f64::from(steps));
                        (0..order).map(|_| size).product::<f64>()
                    })
                    .sum();
                let numeric = 0.7 * sum / f64::from(steps);
                let closed = sizes.moment_between(order, from, to);
                assert!((numeric / closed - 1.0).abs() < 1e-6, "{sizes:?} {order}: {numeric} {closed}");
            }
        }
    }

    #[test]
    fn means_are_the_ones_asked_for() {
        let [plain, shifted, ..] = all();
        assert!((plain.mean() - 3.0).abs() < 1e-12);
        assert!((shifted.mean() - 5.0).abs() < 1e-12);
        // Second moment of an exponential of mean 3: 2·3².
        assert!((plain.moment_between(2, 0.0, f64::INFINITY) - 18.0).abs() < 1e-9);
        // The paper's E[s] for a bounded power law: α(s₀^α s^(1-α) - s₀) / ((1-α)(1-(s₀/s)^α)).
        let power = Sizes::power_law(1.0, 1000.0, 1.1).unwrap();
        let expected = 1.1 * (1000_f64.powf(-0.1) - 1.0) / (-0.1 * (1.0 - 1000_f64.powf(-1.1)));
        assert!((power.mean() / expected - 1.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_turn_the_distribution_around() {
        for sizes in all() {
            for share in [0.0, 0.1, 0.5, 0.99] {
                let back = sizes.share_between(sizes.least(), sizes.quantile(share));
                assert!((back - share).abs() < 1e-9, "{sizes:?} {share} {back}");
            }
            assert!(sizes.quantile(1.0).is_finite());
        }
    }

    #[test]
    fn invalid_parameters_of_a_distribution_are_refused() {
        assert!(Sizes::exponential(3.0, 3.0).is_err());
        assert!(Sizes::exponential(-1.0, 3.0).is_err());
        assert!(Sizes::power_law(1.0, 1.0, 1.0).is_err());
        assert!(Sizes::power_law(1.0, 9.0, 0.0).is_err());
        assert!(Sizes::power_law(f64::NAN, 9.0, 1.0).is_err());
    }
}

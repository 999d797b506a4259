//! Input, argument and result of [`Accelerator::ValueAtRisk`](crate::Accelerator::ValueAtRisk).
//!
//! The value at risk of a portfolio is the loss that it exceeds with a small probability only. The accelerator prices the whole
//! portfolio in each scenario by the formula of Black and Scholes; the loss is then a quantile of the values, which
//! [`value_at_risk`] finds. A portfolio of more than 64 options is the sum of several.

/// Maximum number of options of a portfolio.
pub const MAX_OPTIONS: usize = 64;
/// Bytes of the parameter `portfolio`.
pub const PORTFOLIO_BYTES: u32 = 64 * 5 * 4;
/// Bytes of a scenario in the input.
pub const SCENARIO_BYTES: u32 = 4 * 4;

/// European options on the asset with the same terms, and how many of them the portfolio has; a number below zero is
/// that of options sold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptionPosition {
    /// Price at which the options may be exercised.
    pub strike: f32,
    /// Years until then, from today.
    pub years: f32,
    /// Volatility of the asset, per root of a year.
    pub volatility: f32,
    /// Number of options to buy the asset.
    pub calls: f32,
    /// Number of options to sell the asset.
    pub puts: f32,
}

/// What may be on some day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Price of the asset.
    pub spot: f32,
    /// What is added to the volatility of each option.
    pub volatility_shift: f32,
    /// Rate of interest per year, compounded continuously.
    pub rate: f32,
    /// Years that have passed since today.
    pub years_passed: f32,
}

/// A portfolio has more than [`MAX_OPTIONS`] options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the portfolio has {0} options with different terms; give at most {MAX_OPTIONS} at a time")]
pub struct TooManyOptions(usize);

impl Scenario {
    /// The bytes of a block of the input.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { spot, volatility_shift, rate, years_passed } = *self;
        [spot, volatility_shift, rate, years_passed].into_iter().flat_map(f32::to_le_bytes).collect()
    }
}

/// The bytes of the argument `portfolio`.
///
/// # Errors
/// There are too many options.
pub fn portfolio_bytes(options: &[OptionPosition]) -> Result<Vec<u8>, TooManyOptions> {
    if options.len() > MAX_OPTIONS {
        return Err(TooManyOptions(options.len()));
    }
    let floats = options.iter().flat_map(|option| {
        let OptionPosition { strike, years, volatility, calls, puts } = *option;
        [strike, years, volatility, calls, puts]
    });
    let mut bytes: Vec<u8> = floats.flat_map(f32::to_le_bytes).collect();
    // Zero calls and zero puts are worth nothing.
    bytes.resize(PORTFOLIO_BYTES as usize, 0);
    Ok(bytes)
}

/// The least loss against the value of today that is not exceeded in a share `confidence` of the scenarios, such as 0.99.
///
/// None without scenarios, with a value that is not finite, and for a confidence outside of 0 to 1.
#[must_use]
pub fn value_at_risk(value_today: f32, values: &[f32], confidence: f64) -> Option<f32> {
    let mut losses: Vec<f32> = values.iter().map(|value| value_today - value).collect();
    if !(0.0..=1.0).contains(&confidence) || losses.iter().any(|loss| !loss.is_finite()) {
        return None;
    }
    losses.sort_by(f32::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is not negative, at most the number of losses, and meant to be rounded"
    )]
    let not_exceeded = (confidence * losses.len() as f64).ceil() as usize;
    losses.get(not_exceeded.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_at_risk_is_exceeded_by_the_rest_only() {
        let values: Vec<f32> = (0u16..100).map(|value| f32::from(value) + 1.0).collect();
        let at = |confidence| value_at_risk(100.0, &values, confidence);
        assert_eq!((at(0.99), at(0.95), at(1.0), at(0.0)), (Some(98.0), Some(94.0), Some(99.0), Some(0.0)));
        assert_eq!((at(1.5), at(f64::NAN)), (None, None));
        assert_eq!(value_at_risk(1.0, &[], 0.5), None);
        assert_eq!(value_at_risk(1.0, &[f32::NAN], 0.5), None);
    }

    #[test]
    fn a_portfolio_fits_the_parameter_or_is_refused() {
        let option = OptionPosition { strike: 1.0, years: 1.0, volatility: 0.2, calls: 1.0, puts: 0.0 };
        assert_eq!(portfolio_bytes(&[option; 3]).unwrap().len(), PORTFOLIO_BYTES as usize);
        let error = portfolio_bytes(&[option; 65]).unwrap_err().to_string();
        assert!(error.contains("give at most 64 at a time"), "{error}");
    }
}

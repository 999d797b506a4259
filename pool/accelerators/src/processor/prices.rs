//! Value of a portfolio of options in each scenario, by the formula of Black and Scholes, in `f64`.

use super::floats;
use std::f64::consts::SQRT_2;

/// Time and volatility that an option has at least; without them the formula divides by zero.
const LEAST_YEARS: f64 = 1e-4;
const LEAST_VOLATILITY: f64 = 1e-3;

/// An option of the portfolio: strike, years, volatility, calls, puts.
type Terms = [f64; 5];
/// Spot, shift of the volatility, rate, years passed.
type Scenario = [f64; 4];

/// The argument is the portfolio.
pub(super) fn compute(input: &[u8], portfolio: &[u8]) -> Vec<u8> {
    let options: Vec<Terms> = rows(portfolio);
    // Unused places of the portfolio have a strike of zero.
    let options: Vec<Terms> =
        options.into_iter().filter(|[.., calls, puts]| *calls != 0.0 || *puts != 0.0).collect();
    let value = |scenario: &Scenario| options.iter().map(|terms| value(terms, scenario)).sum::<f64>();
    #[expect(clippy::cast_possible_truncation, reason = "the output is rounded to f32")]
    let values = rows(input).iter().map(|scenario| value(scenario) as f32).collect::<Vec<_>>();
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The numbers in groups.
fn rows<const NUMBERS: usize>(bytes: &[u8]) -> Vec<[f64; NUMBERS]> {
    let numbers = floats(bytes);
    let row = |row: &[f32]| {
        let mut numbers = [0.0; NUMBERS];
        numbers.iter_mut().zip(row).for_each(|(to, from)| *to = f64::from(*from));
        numbers
    };
    numbers.chunks_exact(NUMBERS).map(row).collect()
}

/// The value of an option's position in a scenario.
fn value(terms: &Terms, scenario: &Scenario) -> f64 {
    let [strike, years, volatility, calls, puts] = *terms;
    let [spot, shift, rate, passed] = *scenario;
    let years = (years - passed).max(LEAST_YEARS);
    let volatility = (volatility + shift).max(LEAST_VOLATILITY);
    let spread = volatility * years.sqrt();
    let d1 = ((spot / strike).ln() + (rate + volatility.powi(2) / 2.0) * years) / spread;
    let d2 = d1 - spread;
    let present = strike * (-rate * years).exp();
    let call = spot * normal(d1) - present * normal(d2);
    let put = present * normal(-d2) - spot * normal(-d1);
    // A position of zero options is worth nothing, whatever a price is.
    let worth = |number: f64, price: f64| if number == 0.0 { 0.0 } else { number * price };
    worth(calls, call) + worth(puts, put)
}

/// The cumulative normal distribution.
fn normal(x: f64) -> f64 {
    libm::erfc(-x / SQRT_2) / 2.0
}

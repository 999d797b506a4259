//! Prices of options in `f64`, with the normal distribution by the complementary error function.

use super::{Expected, Near, floats};
use std::f64::consts::SQRT_2;

/// Error of a value, relative to the sum over all options of their number times strike or spot, the higher one.
pub const TOLERANCE: f64 = 1e-6;

pub fn expected(portfolio: &[u8], input: &[u8]) -> Expected {
    let options: Vec<f64> = floats(portfolio).collect();
    let scenarios: Vec<f64> = floats(input).collect();
    Expected::Near(scenarios.chunks_exact(4).map(|scenario| value(&options, scenario)).collect())
}

fn value(options: &[f64], scenario: &[f64]) -> Near {
    let [spot, shift, rate, passed] = scenario else { panic!("a scenario has four numbers") };
    let (mut value, mut gross) = (0.0, 0.0);
    for option in options.chunks_exact(5).filter(|option| option[3] != 0.0 || option[4] != 0.0) {
        let [strike, years, volatility, calls, puts] = option else { panic!("an option has five numbers") };
        let (call, put) = price(*spot, *strike, *rate, volatility + shift, years - passed);
        value += calls * call + puts * put;
        gross += (calls.abs() + puts.abs()) * strike.max(*spot);
    }
    Near { value, tolerance: TOLERANCE * gross }
}

/// Prices of a call and a put; an option that ends, or whose asset does not move, counts with the least values of the
/// interface.
pub fn price(spot: f64, strike: f64, rate: f64, volatility: f64, years: f64) -> (f64, f64) {
    let (volatility, years) = (volatility.max(1e-3), years.max(1e-4));
    let spread = volatility * years.sqrt();
    let d1 = ((spot / strike).ln() + (rate + volatility.powi(2) / 2.0) * years) / spread;
    let discounted = strike * (-rate * years).exp();
    let call = spot * normal(d1) - discounted * normal(d1 - spread);
    (call, call - spot + discounted)
}

fn normal(x: f64) -> f64 {
    libm::erfc(-x / SQRT_2) / 2.0
}

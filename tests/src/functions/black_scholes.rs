//! Prices of European options by Black and Scholes. Input: u32 count, then spot, strike, rate, volatility and
//! years of each option. Output: prices of the call and the put of each option.

use super::{Function, FunctionError, Numbers, Tolerance, floats, take_u32};

/// Name of the program, the kernel and the bitstream.
pub const NAME: &str = "blackscholes";

/// Number of floats per option in the input.
const FLOATS_IN: usize = 5;

/// Prices are differences of floats of about 100, computed with the devices' relaxed exp and log.
pub(super) const TOLERANCE: Tolerance = Tolerance { absolute: 5e-3, relative: 1e-4 };

/// Random options with sensible parameters.
#[must_use]
pub fn make_input(count: u16, numbers: &mut Numbers) -> Vec<u8> {
    let ranges: [(f32, f32); FLOATS_IN] = [(5.0, 200.0), (5.0, 200.0), (0.0, 0.1), (0.05, 0.8), (0.1, 10.0)];
    let mut bytes = u32::from(count).to_le_bytes().to_vec();
    for _ in 0..count {
        bytes.extend(ranges.iter().flat_map(|&(low, high)| numbers.float(low, high).to_le_bytes()));
    }
    bytes
}

/// Computes the output for an input.
///
/// # Errors
/// The length does not fit the count.
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::BlackScholes, reason };
    let (count, rest) = take_u32(input).ok_or_else(|| malformed("no count"))?;
    let options = rest.chunks_exact(FLOATS_IN * 4);
    let whole = options.remainder().is_empty();
    if count == 0 || !whole || u32::try_from(options.len()) != Ok(count) {
        return Err(malformed("not count options of five floats"));
    }
    let mut output = Vec::with_capacity(options.len() * 8);
    for option in options {
        let mut values = floats(option).map(f64::from);
        let mut next = || values.next().unwrap_or_default();
        let (spot, strike, rate, volatility, years) = (next(), next(), next(), next(), next());
        let (call, put) = price(spot, strike, rate, volatility, years);
        for value in [call, put] {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "f64 to f32 rounds, which is what the output holds"
            )]
            output.extend((value as f32).to_le_bytes());
        }
    }
    Ok(output)
}

fn price(spot: f64, strike: f64, rate: f64, volatility: f64, years: f64) -> (f64, f64) {
    let spread = volatility * years.sqrt();
    let d1 = ((spot / strike).ln() + (rate + 0.5 * volatility * volatility) * years) / spread;
    let d2 = d1 - spread;
    let present = strike * (-rate * years).exp();
    let call = spot * normal(d1) - present * normal(d2);
    let put = present * normal(-d2) - spot * normal(-d1);
    (call, put)
}

/// Cumulative normal distribution, Abramowitz and Stegun 26.2.17 (error below 1e-7), as in the kernel.
fn normal(x: f64) -> f64 {
    let k = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let poly = k
        * (0.319_381_530
            + k * (-0.356_563_782 + k * (1.781_477_937 + k * (-1.821_255_978 + k * 1.330_274_429))));
    let tail = 0.398_942_280_4 * (-0.5 * x * x).exp() * poly;
    if x < 0.0 { tail } else { 1.0 - tail }
}

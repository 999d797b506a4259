//! What a processor makes of a job's input.

use super::jobs::{COUNTER, DemoJob, KEY, portfolio};
use aes::Aes256;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use fpga_accelerators::Accelerator;
use fpga_accelerators::value_at_risk::{OptionPosition, SCENARIO_BYTES};
use sha2::{Digest as _, Sha256};
use std::f64::consts::SQRT_2;

/// Error of a portfolio's value, relative to the sum over its options of their number times strike or spot, the higher
/// one.
const TOLERANCE: f64 = 1e-6;
/// Every so many scenarios one is priced again: all of them would take longer than the job.
const SAMPLED: usize = 97;

/// Compares a job's output with what a processor computes.
pub(super) fn check(job: &DemoJob, input: &[u8], output: &[u8]) -> Result<(), String> {
    let exact = |expected: &[u8]| match expected == output {
        true => Ok(()),
        false => Err(format!("{} bytes of output are not what the processor computes", output.len())),
    };
    match job.accelerator {
        Accelerator::Aes256Ctr => {
            let mut expected = input.to_vec();
            Ctr128BE::<Aes256>::new(&KEY.into(), &COUNTER.into()).apply_keystream(&mut expected);
            exact(&expected)
        }
        Accelerator::Sha256 => exact(&Sha256::digest(input)),
        Accelerator::ValueAtRisk => check_values(input, output),
        other => Err(format!("nobody knows what {} computes", other.name())),
    }
}

fn check_values(input: &[u8], output: &[u8]) -> Result<(), String> {
    let scenarios = input.chunks_exact(SCENARIO_BYTES as usize);
    if scenarios.len() * 4 != output.len() {
        return Err(format!("{} bytes of output for {} scenarios", output.len(), scenarios.len()));
    }
    let options = portfolio();
    let values = floats(output).zip(scenarios).enumerate().step_by(SAMPLED);
    for (at, (found, scenario)) in values {
        let (value, tolerance) = value(&options, scenario);
        // A result that is no number is near to none.
        let is_near = (value - found).abs() <= tolerance;
        if !is_near {
            return Err(format!("in scenario {at} the portfolio is worth {value}, not {found}"));
        }
    }
    Ok(())
}

/// The value of a portfolio in a scenario by the formula of Black and Scholes, and how far a result may be from it.
fn value(options: &[OptionPosition], scenario: &[u8]) -> (f64, f64) {
    let terms: Vec<f64> = floats(scenario).collect();
    let &[spot, shift, rate, passed] = terms.as_slice() else { return (f64::NAN, 0.0) };
    let mut sum = (0.0, 0.0);
    for option in options {
        let [strike, years, volatility, calls, puts] =
            [option.strike, option.years, option.volatility, option.calls, option.puts].map(f64::from);
        let (years, volatility) = (years - passed, volatility + shift);
        let spread = volatility * years.sqrt();
        let d1 = ((spot / strike).ln() + (rate + volatility.powi(2) / 2.0) * years) / spread;
        let discounted = strike * (-rate * years).exp();
        let call = spot * normal(d1) - discounted * normal(d1 - spread);
        let put = call - spot + discounted;
        sum.0 += calls * call + puts * put;
        sum.1 += (calls.abs() + puts.abs()) * strike.max(spot) * TOLERANCE;
    }
    sum
}

/// Cumulative normal distribution.
fn normal(x: f64) -> f64 {
    libm::erfc(-x / SQRT_2) / 2.0
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let floats = bytes.as_chunks::<4>().0.iter();
    floats.map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::jobs::JOBS;
    use super::*;

    #[test]
    fn a_wrong_output_is_found() {
        for job in JOBS.map(|job| DemoJob { megabytes: 1, ..job }) {
            let input = job.input();
            let zeros = match job.accelerator {
                Accelerator::Aes256Ctr => input.len(),
                Accelerator::Sha256 => 32,
                _ => input.len() / 4,
            };
            assert!(check(&job, &input, &vec![0; zeros]).is_err(), "{job:?}");
            assert!(check(&job, &input, &[]).is_err(), "{job:?}");
        }
    }

    #[test]
    fn the_price_of_an_option_is_the_textbooks() {
        // Hull, Options, Futures, and Other Derivatives: a call at 4.76 and a put at 0.81.
        let option = OptionPosition { strike: 40.0, years: 0.5, volatility: 0.2, calls: 1.0, puts: 0.0 };
        let scenario: Vec<u8> = [42_f32, 0.0, 0.1, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let call = value(&[option], &scenario).0;
        let put = value(&[OptionPosition { calls: 0.0, puts: 1.0, ..option }], &scenario).0;
        assert!((call - 4.76).abs() < 0.005 && (put - 0.81).abs() < 0.005, "{call} {put}");
    }
}

//! Random jobs for each accelerator.

use crate::reference::{self, Expected};
use fpga_accelerators::reed_solomon::Coefficients;
use fpga_accelerators::value_at_risk::{OptionPosition, Scenario, portfolio_bytes};
use fpga_accelerators::{Accelerator, Arguments, Tail};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }

    fn float(&mut self, least: f32, most: f32) -> f32 {
        least + (most - least) * (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    /// At least so many bytes of floats from −1 to 1.
    fn floats(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes.div_ceil(4)).flat_map(|_| self.float(-1.0, 1.0).to_le_bytes()).collect()
    }
}

/// A stream for an accelerator.
pub struct Job {
    pub accelerator: Accelerator,
    pub values: Vec<(&'static str, Vec<u8>)>,
    pub input: Vec<u8>,
}

impl Job {
    /// A job of so many bytes; of fewer where the accelerator refuses a tail.
    pub fn random(accelerator: Accelerator, bytes: usize, random: &mut Random) -> Self {
        let spec = accelerator.interface().spec().clone();
        let block = spec.block_bytes as usize;
        let bytes = if spec.tail == Tail::Refused { bytes / block * block } else { bytes };
        let values = match accelerator {
            Accelerator::Aes256Ctr => vec![("key", random.bytes(32)), ("counter", random.bytes(16))],
            Accelerator::Sha256 | Accelerator::Fft => vec![],
            Accelerator::ReedSolomon => vec![("coefficients", Coefficients::of_parity().to_bytes())],
            Accelerator::DynamicTimeWarping => vec![("query", random.floats(512))],
            Accelerator::ValueAtRisk => vec![("portfolio", portfolio(random))],
        };
        let mut input = match accelerator {
            Accelerator::Aes256Ctr | Accelerator::Sha256 | Accelerator::ReedSolomon => random.bytes(bytes),
            Accelerator::Fft | Accelerator::DynamicTimeWarping => random.floats(bytes),
            Accelerator::ValueAtRisk => {
                (0..bytes / block).flat_map(|_| scenario(random).to_bytes()).collect()
            }
        };
        input.truncate(bytes);
        Self { accelerator, values, input }
    }

    pub fn arguments(&self) -> Arguments {
        let values: Vec<(&str, &[u8])> =
            self.values.iter().map(|(name, value)| (*name, &value[..])).collect();
        self.accelerator.interface().arguments(&values).unwrap()
    }

    /// What the reference of the accelerator computes.
    pub fn reference(&self) -> Expected {
        let value = |index: usize| &self.values[index].1[..];
        match self.accelerator {
            Accelerator::Aes256Ctr => reference::cipher(value(0), value(1), &self.input),
            Accelerator::Sha256 => reference::digest(&self.input),
            Accelerator::ReedSolomon => reference::parity(&self.input),
            Accelerator::Fft => reference::fourier::expected(&self.input),
            Accelerator::DynamicTimeWarping => reference::time_warping::expected(value(0), &self.input),
            Accelerator::ValueAtRisk => reference::black_scholes::expected(value(0), &self.input),
        }
    }
}

/// Bought and sold options; 50 of the 64 places.
fn portfolio(random: &mut Random) -> Vec<u8> {
    let option = |_| OptionPosition {
        strike: random.float(50.0, 150.0),
        years: random.float(0.05, 5.0),
        volatility: random.float(0.1, 0.6),
        calls: random.float(-10.0, 10.0),
        puts: random.float(-10.0, 10.0),
    };
    portfolio_bytes(&(0..50).map(option).collect::<Vec<_>>()).unwrap()
}

fn scenario(random: &mut Random) -> Scenario {
    Scenario {
        spot: random.float(40.0, 200.0),
        volatility_shift: random.float(-0.05, 0.2),
        rate: random.float(-0.01, 0.08),
        years_passed: random.float(0.0, 0.1),
    }
}

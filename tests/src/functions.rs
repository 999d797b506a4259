//! The expected answers of the HTTP functions in `tests/functions`, computed on the CPU: inputs from a seed, the
//! output for any input, and comparisons. This module is pure; other modules use HTTP and OpenCL.
//! `tests/functions/README.md` describes the formats.

pub mod bfs;
pub mod black_scholes;
pub mod cnn;
pub mod matmul;
pub mod netpbm;
pub mod sha256;
pub mod sobel;

use std::fmt;
use std::str::FromStr;

/// One of the functions. Its name is also the name of its program, `.cl` file and bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// Edges of a picture (B-10).
    Sobel,
    /// Product of two square matrices (B-10).
    Matmul,
    /// Prices of European options.
    BlackScholes,
    /// Digests of many messages (P-8).
    Sha256,
    /// Scores of a picture by a convolutional network (B-10).
    Cnn,
    /// Breadth-first search of a graph (T).
    Bfs,
}

/// The reasons for which an input can't be computed or an output is wrong.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FunctionError {
    /// The input does not follow the function's format.
    #[error("the input of {function} is malformed: {reason}")]
    Input {
        /// The function whose input it is.
        function: Function,
        /// Description of the error.
        reason: &'static str,
    },
    /// The output has another length than expected.
    #[error("the output of {function} has {got} bytes instead of {expected}")]
    Length {
        /// The function whose output it is.
        function: Function,
        /// Bytes expected.
        expected: usize,
        /// Bytes received.
        got: usize,
    },
    /// The output differs from the expected one.
    #[error("the output of {function} is wrong at {unit} {index}: {got} instead of {expected}")]
    Value {
        /// The function whose output it is.
        function: Function,
        /// The compared unit: byte or float.
        unit: &'static str,
        /// Index of the unit, from 0.
        index: usize,
        /// Value expected.
        expected: String,
        /// Value received.
        got: String,
    },
}

/// Greatest difference of a float from the reference. Devices contract, reorder and approximate differently.
#[derive(Debug, Clone, Copy)]
struct Tolerance {
    /// Allowed difference for any value.
    absolute: f32,
    /// Additional difference, as a share of the expected value.
    relative: f32,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 6] =
        [Self::Sobel, Self::Matmul, Self::BlackScholes, Self::Sha256, Self::Cnn, Self::Bfs];

    /// The functions with one kernel, which has the name of the function. The demo deploys them.
    pub const WITH_ONE_KERNEL: [Self; 4] = [Self::Sobel, Self::Matmul, Self::BlackScholes, Self::Sha256];

    /// Name of the program and the bitstream.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sobel => sobel::NAME,
            Self::Matmul => matmul::NAME,
            Self::BlackScholes => black_scholes::NAME,
            Self::Sha256 => sha256::NAME,
            Self::Cnn => cnn::NAME,
            Self::Bfs => bfs::NAME,
        }
    }

    /// Generates an input from a seed. `size` is the side of the picture or of the matrices, or the number of
    /// options, messages or nodes; 0 counts as 1.
    #[must_use]
    pub fn make_input(self, size: u16, seed: u64) -> Vec<u8> {
        let size = size.max(1);
        let mut numbers = Numbers::new(seed);
        match self {
            Self::Sobel => sobel::make_input(size, &mut numbers),
            Self::Matmul => matmul::make_input(size, &mut numbers),
            Self::BlackScholes => black_scholes::make_input(size, &mut numbers),
            Self::Sha256 => sha256::make_input(size, &mut numbers),
            Self::Cnn => cnn::make_input(size, &mut numbers),
            Self::Bfs => bfs::make_input(size, &mut numbers),
        }
    }

    /// Computes the output for an input. This takes as long as the function on one core without vectors, so keep the
    /// result if the same input is sent again.
    ///
    /// # Errors
    /// [`FunctionError::Input`] where the function would answer 400.
    pub fn reference(self, input: &[u8]) -> Result<Vec<u8>, FunctionError> {
        match self {
            Self::Sobel => sobel::reference(input),
            Self::Matmul => matmul::reference(input),
            Self::BlackScholes => black_scholes::reference(input),
            Self::Sha256 => sha256::reference(input),
            Self::Cnn => cnn::reference(input),
            Self::Bfs => bfs::reference(input),
        }
    }

    /// Compares an output with the result of [`Self::reference`]: byte by byte, or within a tolerance for floats.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(self, expected: &[u8], output: &[u8]) -> Result<(), FunctionError> {
        if expected.len() != output.len() {
            return Err(FunctionError::Length {
                function: self,
                expected: expected.len(),
                got: output.len(),
            });
        }
        match self {
            Self::Sobel | Self::Sha256 | Self::Bfs => self.compare_bytes(expected, output),
            Self::Matmul => self.compare_floats(expected, output, matmul::TOLERANCE),
            Self::BlackScholes => self.compare_floats(expected, output, black_scholes::TOLERANCE),
            Self::Cnn => self.compare_floats(expected, output, cnn::TOLERANCE),
        }
    }

    /// Checks the output of a function for an input: [`Self::reference`] and [`Self::compare`].
    ///
    /// # Errors
    /// A malformed input or the first difference.
    pub fn verify(self, input: &[u8], output: &[u8]) -> Result<(), FunctionError> {
        self.compare(&self.reference(input)?, output)
    }

    fn compare_bytes(self, expected: &[u8], output: &[u8]) -> Result<(), FunctionError> {
        match expected.iter().zip(output).enumerate().find(|(_, (e, g))| e != g) {
            None => Ok(()),
            Some((index, (e, g))) => Err(FunctionError::Value {
                function: self,
                unit: "byte",
                index,
                expected: e.to_string(),
                got: g.to_string(),
            }),
        }
    }

    fn compare_floats(
        self,
        expected: &[u8],
        output: &[u8],
        tolerance: Tolerance,
    ) -> Result<(), FunctionError> {
        for (index, (e, g)) in floats(expected).zip(floats(output)).enumerate() {
            let allowed = tolerance.absolute + tolerance.relative * e.abs();
            // A comparison with NaN is false, so that NaN is a difference.
            let close = (e - g).abs() <= allowed;
            if !close {
                return Err(FunctionError::Value {
                    function: self,
                    unit: "float",
                    index,
                    expected: e.to_string(),
                    got: g.to_string(),
                });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Function {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|function| function.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no function is called '{text}': write one of {names}")
        })
    }
}

/// Pseudo-random numbers that are the same everywhere (SplitMix64).
#[derive(Debug, Clone)]
pub struct Numbers {
    state: u64,
}

impl Numbers {
    /// A generator; equal seeds give equal numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next byte.
    pub const fn byte(&mut self) -> u8 {
        self.bits().to_be_bytes()[0]
    }

    /// The next float in [`low`, `high`).
    pub fn float(&mut self, low: f32, high: f32) -> f32 {
        let [a, b, ..] = self.bits().to_be_bytes();
        let share = f32::from(u16::from_be_bytes([a, b])) / 65536.0;
        low + (high - low) * share
    }
}

/// The little-endian floats in `bytes`; an incomplete one at the end is ignored.
fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + Clone + '_ {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Splits a little-endian u32 off the front.
fn take_u32(input: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = input.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests;

//! Product of two n × n matrices of floats (B-10). Input: u32 n, A, B. Output: C.

use super::{Function, FunctionError, Numbers, Tolerance, floats, take_u32};

/// Name of the program, the kernel and the bitstream.
pub const NAME: &str = "matmul";

/// Greatest n that the function accepts.
pub const MAX_N: u32 = 2048;

/// Values lie in −1..1, so rounding errors of a sum of 2048 products are about 1e-4 at most.
pub(super) const TOLERANCE: Tolerance = Tolerance { absolute: 1e-3, relative: 1e-4 };

/// Two random matrices.
#[must_use]
pub fn make_input(n: u16, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = u32::from(n).to_le_bytes().to_vec();
    for _ in 0..2 * usize::from(n) * usize::from(n) {
        bytes.extend(numbers.float(-1.0, 1.0).to_le_bytes());
    }
    bytes
}

/// Computes the output for an input.
///
/// # Errors
/// The length does not fit n, or n is not in 1 to [`MAX_N`].
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::Matmul, reason };
    let (n, rest) = take_u32(input).ok_or_else(|| malformed("no n"))?;
    let side = usize::try_from(n).map_err(|_| malformed("n is too large"))?;
    if n == 0 || n > MAX_N {
        return Err(malformed("n is not in 1 to 2048"));
    }
    if rest.len() != 2 * side * side * 4 {
        return Err(malformed("not two matrices of n x n floats"));
    }
    let (a, b) = rest.split_at(side * side * 4);
    let b: Vec<f32> = floats(b).collect();
    let mut output = Vec::with_capacity(side * side * 4);
    let mut sums = vec![0.0_f32; side];
    for row in a.chunks_exact(side * 4) {
        sums.fill(0.0);
        for (factor, line) in floats(row).zip(b.chunks_exact(side)) {
            for (sum, value) in sums.iter_mut().zip(line) {
                *sum += factor * value;
            }
        }
        output.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
    }
    Ok(output)
}

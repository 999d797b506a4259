//! SHA-256 of many messages of one size (P-8): u32 size, u32 count, the messages in; 32 bytes for each out.

use super::{Function, FunctionError, Numbers, take_u32};
use sha2::{Digest, Sha256};

/// Name of program, kernel and bitstream.
pub const NAME: &str = "sha256";

/// Size of the messages of [`make_input`], in bytes: one that needs a second block for the padding.
const MESSAGE: u32 = 64;

/// That many random messages of 64 bytes.
#[must_use]
pub fn make_input(count: u16, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = MESSAGE.to_le_bytes().to_vec();
    bytes.extend(u32::from(count).to_le_bytes());
    for _ in 0..u32::from(count) * MESSAGE / 8 {
        bytes.extend(numbers.bits().to_le_bytes());
    }
    bytes
}

/// The expected output.
///
/// # Errors
/// The length does not fit size and count.
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::Sha256, reason };
    let (size, rest) = take_u32(input).ok_or_else(|| malformed("no size"))?;
    let (count, messages) = take_u32(rest).ok_or_else(|| malformed("no count"))?;
    let size = usize::try_from(size).map_err(|_| malformed("size is too large"))?;
    if size == 0 || count == 0 || u64::try_from(messages.len()) != Ok(size as u64 * u64::from(count)) {
        return Err(malformed("not count messages of that size"));
    }
    Ok(messages.chunks_exact(size).flat_map(Sha256::digest).collect())
}

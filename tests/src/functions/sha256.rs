//! SHA-256 of many messages of the same size (P-8). Input: u32 size, u32 count, the messages. Output: 32 bytes for
//! each message.

use super::{Function, FunctionError, Numbers, take_u32};
use sha2::{Digest, Sha256};

/// Name of the program, the kernel and the bitstream.
pub const NAME: &str = "sha256";

/// Size of the messages of [`make_input`] in bytes; the padding of this size needs a second block.
const MESSAGE: u32 = 64;

/// `count` random messages of 64 bytes.
#[must_use]
pub fn make_input(count: u16, numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = MESSAGE.to_le_bytes().to_vec();
    bytes.extend(u32::from(count).to_le_bytes());
    for _ in 0..u32::from(count) * MESSAGE / 8 {
        bytes.extend(numbers.bits().to_le_bytes());
    }
    bytes
}

/// Computes the output for an input.
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

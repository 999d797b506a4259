//! AES-256 in counter mode.

use super::{ChunkInput, ChunkOutput, array};
use aes::Aes256;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use zeroize::Zeroizing;

const BLOCK_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// The state is the number of blocks before the chunk; arguments are the key and the counter of the stream's first block.
pub(super) fn compute(chunk: &ChunkInput<'_>) -> ChunkOutput {
    let blocks_before = u64::from_le_bytes(array(chunk.state));
    let (key, counter) = chunk.arguments.split_at_checked(KEY_BYTES).unwrap_or_default();
    let key: Zeroizing<[u8; KEY_BYTES]> = Zeroizing::new(array(key));
    let counter = u128::from_be_bytes(array(counter)).wrapping_add(blocks_before.into());
    let mut bytes = chunk.bytes.to_vec();
    Ctr128BE::<Aes256>::new((&*key).into(), &counter.to_be_bytes().into()).apply_keystream(&mut bytes);
    let blocks = chunk.bytes.len().div_ceil(BLOCK_BYTES) as u64;
    ChunkOutput { bytes, state: blocks_before.wrapping_add(blocks).to_le_bytes().to_vec() }
}

//! SHA-256.

use super::{ChunkInput, ChunkOutput, array};
use crate::chunks::Position;

const BLOCK_BYTES: usize = 64;
/// Bytes of the count before the hash in the state.
const COUNT_BYTES: usize = 8;
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The state is the number of bytes before the chunk, and the hash of their blocks.
pub(super) fn compute(chunk: &ChunkInput<'_>) -> ChunkOutput {
    let (count, hash) = chunk.state.split_at_checked(COUNT_BYTES).unwrap_or_default();
    let bytes_before = u64::from_le_bytes(array(count));
    let mut state = INITIAL;
    if bytes_before > 0 {
        for (word, bytes) in state.iter_mut().zip(hash.chunks_exact(4)) {
            *word = u32::from_le_bytes(array(bytes));
        }
    }
    let bytes = bytes_before.wrapping_add(chunk.bytes.len() as u64);
    let blocks = chunk.bytes.chunks_exact(BLOCK_BYTES);
    let rest = blocks.remainder();
    blocks.for_each(|block| compress(&mut state, block));
    let mut output = Vec::new();
    if chunk.position == Position::Last {
        // A one, zeros, and the number of bits close the stream.
        let mut padded = rest.to_vec();
        padded.push(0x80);
        padded.resize((padded.len() + COUNT_BYTES).next_multiple_of(BLOCK_BYTES) - COUNT_BYTES, 0);
        padded.extend(bytes.wrapping_mul(8).to_be_bytes());
        padded.chunks_exact(BLOCK_BYTES).for_each(|block| compress(&mut state, block));
        output.extend(state.iter().flat_map(|word| word.to_be_bytes()));
    }
    let next = bytes.to_le_bytes().into_iter().chain(state.iter().flat_map(|word| word.to_le_bytes()));
    ChunkOutput { bytes: output, state: next.collect() }
}

fn compress(state: &mut [u32; 8], block: &[u8]) {
    let block: [u8; BLOCK_BYTES] = array(block);
    sha2::compress256(state, &[block.into()]);
}

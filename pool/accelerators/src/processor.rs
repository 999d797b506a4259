//! What the kernels of the shipped accelerators compute, on the processor: by the same chunks, states, and arguments. So a stream
//! may go from a board to the processor, and back, between any two chunks.

mod cipher;
mod digest;
mod erasure;
mod prices;
mod transform;
mod warping;

use crate::chunks::Position;
use crate::interface::Tail;
use crate::shipped::Accelerator;

/// A chunk as a kernel gets it.
#[derive(Debug, Clone, Copy)]
pub struct ChunkInput<'a> {
    /// The chunk's bytes of the input, and the zeros that fill its last block.
    pub bytes: &'a [u8],
    /// The state that the chunk before left; zeros for the first chunk.
    pub state: &'a [u8],
    /// The arguments in the order of the interface ([`Arguments::expose`](crate::Arguments::expose)).
    pub arguments: &'a [u8],
    /// Whether others follow.
    pub position: Position,
}

/// What comes out of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkOutput {
    /// The chunk's bytes of the output.
    pub bytes: Vec<u8>,
    /// The state for the next chunk.
    pub state: Vec<u8>,
}

/// The reason why bytes are no chunk of an accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChunk {
    /// The input ends within a block.
    #[error("the chunk has {given} bytes; give a multiple of {block}")]
    Block {
        /// Bytes of the chunk.
        given: usize,
        /// Bytes of a block.
        block: u32,
    },
    /// The state is not that of the accelerator.
    #[error("the state has {given} bytes; give {expected}")]
    State {
        /// Bytes of the state.
        given: usize,
        /// Bytes of the accelerator's state.
        expected: u32,
    },
    /// The arguments are not those of the accelerator.
    #[error("the arguments have {given} bytes; give {expected}")]
    Arguments {
        /// Bytes of the arguments.
        given: usize,
        /// Bytes of the accelerator's parameters.
        expected: u32,
    },
}

impl Accelerator {
    /// Computes a chunk on the thread that calls.
    ///
    /// # Errors
    /// The lengths are not those of a chunk of this accelerator.
    pub fn compute(self, chunk: &ChunkInput<'_>) -> Result<ChunkOutput, InvalidChunk> {
        self.check(chunk)?;
        let ChunkInput { bytes, arguments, .. } = *chunk;
        let without_state = |bytes| ChunkOutput { bytes, state: Vec::new() };
        Ok(match self {
            Self::Aes256Ctr => cipher::compute(chunk),
            Self::Sha256 => digest::compute(chunk),
            Self::ReedSolomon => without_state(erasure::compute(bytes, arguments)),
            Self::Fft => without_state(transform::compute(bytes)),
            Self::DynamicTimeWarping => without_state(warping::compute(bytes, arguments)),
            Self::ValueAtRisk => without_state(prices::compute(bytes, arguments)),
        })
    }

    fn check(self, chunk: &ChunkInput<'_>) -> Result<(), InvalidChunk> {
        let interface = self.interface();
        let spec = interface.spec();
        let given = chunk.bytes.len();
        let is_whole = usize::try_from(spec.block_bytes).is_ok_and(|block| given.is_multiple_of(block));
        let may_be_shorter = chunk.position == Position::Last && spec.tail == Tail::Partial;
        if !is_whole && !may_be_shorter {
            return Err(InvalidChunk::Block { given, block: spec.block_bytes });
        }
        let is = |bytes: &[u8], expected: u32| u32::try_from(bytes.len()) == Ok(expected);
        if !is(chunk.state, spec.state_bytes) {
            return Err(InvalidChunk::State { given: chunk.state.len(), expected: spec.state_bytes });
        }
        let expected = spec.parameters.iter().map(|parameter| parameter.bytes).sum();
        if !is(chunk.arguments, expected) {
            return Err(InvalidChunk::Arguments { given: chunk.arguments.len(), expected });
        }
        Ok(())
    }
}

/// The first `BYTES` bytes; zeros for those that are not there.
fn array<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut array = [0; BYTES];
    array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    array
}

/// The numbers of an array of `f32`.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(array(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_chunk_is_refused() {
        let chunk = |bytes, state, arguments, position| ChunkInput { bytes, state, arguments, position };
        let (zeros, last) = ([0; 64], Position::Last);
        let aes =
            |chunk: ChunkInput<'_>| Accelerator::Aes256Ctr.compute(&chunk).map(|output| output.bytes.len());
        assert_eq!(aes(chunk(&zeros[..17], &zeros[..8], &zeros[..48], last)), Ok(17));
        let in_the_middle = chunk(&zeros[..17], &zeros[..8], &zeros[..48], Position::BeforeOthers);
        assert_eq!(aes(in_the_middle), Err(InvalidChunk::Block { given: 17, block: 16 }));
        let state = chunk(&zeros[..16], &zeros[..7], &zeros[..48], last);
        assert_eq!(aes(state), Err(InvalidChunk::State { given: 7, expected: 8 }));
        let arguments = chunk(&zeros[..16], &zeros[..8], &zeros[..47], last);
        assert_eq!(aes(arguments), Err(InvalidChunk::Arguments { given: 47, expected: 48 }));
    }
}

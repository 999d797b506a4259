//! Where a stream is cut.

use crate::interface::{Interface, MAX_BLOCK_BYTES, Tail};
use std::num::NonZeroU32;
use std::ops::Range;

/// Maximum number of bytes of a chunk's input, and of its output before the end (P-6): 4 MB.
pub const MAX_CHUNK_BYTES: NonZeroU32 = NonZeroU32::new(MAX_BLOCK_BYTES).unwrap();
/// Longest stream, in bytes: 1 TiB.
pub const MAX_STREAM_BYTES: u64 = 1 << 40;

/// A part of a stream that one launch of the kernel works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The chunk's bytes of the input.
    pub input: Range<u64>,
    /// Zeros that the kernel gets after these bytes.
    pub zeros: u32,
    /// The chunk's bytes of the output.
    pub output: Range<u64>,
    /// Whether others follow.
    pub position: Position,
}

/// Where a chunk is in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// A chunk follows.
    BeforeOthers,
    /// The stream ends with this chunk.
    Last,
}

/// The reason why a stream can't be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The stream has a tail, and the accelerator takes none.
    #[error("the input has {bytes} bytes; give a multiple of {block}")]
    Tail {
        /// Bytes of the stream.
        bytes: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// The stream is longer than [`MAX_STREAM_BYTES`].
    #[error("the input has {0} bytes; give at most {MAX_STREAM_BYTES} at a time")]
    TooLong(u64),
}

/// The chunks of a stream, in order.
#[derive(Debug, Clone)]
pub struct Chunks {
    /// Bytes of the whole input.
    input_bytes: u64,
    /// Bytes of the input in each chunk but the last.
    chunk_bytes: u64,
    block_bytes: u64,
    output_bytes_per_block: u64,
    output_bytes_at_end: u64,
    tail: Tail,
    /// Where the next chunk begins; none after the last one.
    next: Option<u64>,
}

/// Splits a stream of so many bytes into chunks of at most 4 MB. See [`chunks_of`].
///
/// # Errors
/// The stream is too long, or has a tail that the accelerator refuses.
pub fn chunks(interface: &Interface, input_bytes: u64) -> Result<Chunks, StreamError> {
    chunks_of(interface, input_bytes, MAX_CHUNK_BYTES)
}

/// Splits a stream of so many bytes into chunks of whole blocks, whose input and output have at most `most_bytes` each; of one
/// block where that is larger.
///
/// An empty stream has no chunk if nothing comes out of it, else one that is empty, too.
///
/// # Errors
/// The stream is too long, or has a tail that the accelerator refuses.
pub fn chunks_of(
    interface: &Interface,
    input_bytes: u64,
    most_bytes: NonZeroU32,
) -> Result<Chunks, StreamError> {
    let spec = interface.spec();
    let block_bytes = u64::from(spec.block_bytes);
    if input_bytes > MAX_STREAM_BYTES {
        return Err(StreamError::TooLong(input_bytes));
    }
    if spec.tail == Tail::Refused && !input_bytes.is_multiple_of(block_bytes) {
        return Err(StreamError::Tail { bytes: input_bytes, block: spec.block_bytes });
    }
    let larger = u64::from(spec.block_bytes.max(spec.output_bytes_per_block));
    let blocks = (u64::from(most_bytes.get().min(MAX_CHUNK_BYTES.get())) / larger).max(1);
    let is_nothing = input_bytes == 0 && spec.output_bytes_at_end == 0;
    Ok(Chunks {
        input_bytes,
        chunk_bytes: blocks * block_bytes,
        block_bytes,
        output_bytes_per_block: u64::from(spec.output_bytes_per_block),
        output_bytes_at_end: u64::from(spec.output_bytes_at_end),
        tail: spec.tail,
        next: (!is_nothing).then_some(0),
    })
}

impl Chunks {
    /// Bytes of the whole output.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output_before(self.input_bytes) + self.output_bytes_at_end
    }

    /// Bytes of output for the input before `input`, which is a border of a chunk. No product exceeds 2^62: streams and blocks
    /// are bounded.
    fn output_before(&self, input: u64) -> u64 {
        match self.tail {
            Tail::Partial => input * (self.output_bytes_per_block / self.block_bytes),
            Tail::ZeroFilled | Tail::Refused => {
                input.div_ceil(self.block_bytes) * self.output_bytes_per_block
            }
        }
    }

    /// Zeros that fill the block which ends at `input`.
    fn zeros_at(&self, input: u64) -> u32 {
        match self.tail {
            // Less than a block, which fits 32 bits.
            Tail::ZeroFilled => {
                u32::try_from(input.next_multiple_of(self.block_bytes) - input).unwrap_or_default()
            }
            Tail::Partial | Tail::Refused => 0,
        }
    }
}

impl Iterator for Chunks {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        let begin = self.next?;
        let end = self.input_bytes.min(begin + self.chunk_bytes);
        let is_last = end == self.input_bytes;
        self.next = (!is_last).then_some(end);
        let at_end = if is_last { self.output_bytes_at_end } else { 0 };
        Some(Chunk {
            input: begin..end,
            zeros: self.zeros_at(end),
            output: self.output_before(begin)..self.output_before(end) + at_end,
            position: if is_last { Position::Last } else { Position::BeforeOthers },
        })
    }
}

#[cfg(test)]
mod tests;

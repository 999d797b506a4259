//! The pieces into which a job's input is cut.

use crate::error::Error;
use bytes::{Bytes, BytesMut};
use fpga_accelerators::{Chunk, Interface, MAX_CHUNK_BYTES, MAX_STREAM_BYTES, Position, StreamError, chunks};

/// Maximum number of bytes in a piece of the input, and of its output (P-6).
pub const MAX_PIECE_BYTES: u32 = MAX_CHUNK_BYTES.get();

/// How far the input of a job is cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    input_bytes: u64,
    is_last_cut: bool,
}

/// Most bytes in a piece for this interface: whole blocks whose input and output have at most 4 MB each.
pub(crate) fn most_bytes(interface: &Interface) -> u64 {
    let block = u64::from(interface.spec().block_bytes);
    let whole = MAX_STREAM_BYTES / block * block;
    let first = chunks(interface, whole).ok().and_then(|mut chunks| chunks.next());
    first.map_or(block, |chunk| chunk.input.end)
}

impl Cut {
    /// Bytes of the pieces so far.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// Whether the last piece has been cut.
    pub(crate) fn is_over(&self) -> bool {
        self.is_last_cut
    }

    /// The next piece, of so many bytes. `None` for an empty piece out of which nothing comes.
    ///
    /// The chunk's ranges count from the piece's own start: a launch needs no more.
    pub(crate) fn next(
        &mut self,
        interface: &Interface,
        bytes: u64,
        position: Position,
    ) -> Result<Option<Chunk>, Error> {
        if self.is_last_cut {
            return Err(Error::Done);
        }
        let most = most_bytes(interface);
        if bytes > most {
            return Err(Error::Size { given: bytes, most });
        }
        let block = interface.spec().block_bytes;
        if position == Position::BeforeOthers && !bytes.is_multiple_of(u64::from(block)) {
            return Err(Error::Block { given: bytes, block });
        }
        let input_bytes = self.input_bytes + bytes;
        if input_bytes > MAX_STREAM_BYTES {
            return Err(StreamError::TooLong(input_bytes).into());
        }
        let chunk = chunks(interface, bytes)?.next();
        *self = Self { input_bytes, is_last_cut: position == Position::Last };
        Ok(chunk.and_then(|chunk| placed(interface, chunk, position)))
    }
}

/// A piece that was cut as if it were a whole stream, at its true position.
fn placed(interface: &Interface, chunk: Chunk, position: Position) -> Option<Chunk> {
    match position {
        Position::Last => Some(chunk),
        Position::BeforeOthers if chunk.input.is_empty() => None,
        Position::BeforeOthers => {
            let at_end = u64::from(interface.spec().output_bytes_at_end);
            let output = chunk.output.start..chunk.output.end - at_end;
            Some(Chunk { output, position, ..chunk })
        }
    }
}

/// The bytes for the kernel: those of the piece, and the zeros that fill its last block.
pub(crate) fn with_zeros(input: Bytes, chunk: &Chunk) -> Bytes {
    let zeros = usize::try_from(chunk.zeros).unwrap_or_default();
    if zeros == 0 {
        return input;
    }
    let mut filled = BytesMut::with_capacity(input.len() + zeros);
    filled.extend_from_slice(&input);
    filled.resize(input.len() + zeros, 0);
    filled.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_accelerators::{Accelerator, chunks_of};
    use std::num::NonZeroU32;

    #[test]
    fn pieces_are_the_chunks_of_the_whole_stream() {
        for accelerator in Accelerator::ALL {
            let interface = accelerator.interface();
            let block = u64::from(interface.spec().block_bytes);
            let total = block * 7;
            let small = NonZeroU32::new(interface.spec().block_bytes * 3).unwrap();
            let (mut cut, mut before) = (Cut::default(), 0);
            for chunk in chunks_of(&interface, total, small).unwrap() {
                let piece = cut.next(&interface, chunk.input.end - chunk.input.start, chunk.position);
                let piece = piece.unwrap().unwrap();
                assert_eq!(interface.launch(&piece), interface.launch(&chunk), "{accelerator:?}");
                assert_eq!(before + piece.output.end, chunk.output.end, "{accelerator:?}");
                before = chunk.output.end;
            }
            assert!(cut.is_over() && cut.input_bytes() == total);
            assert!(matches!(cut.next(&interface, block, Position::Last), Err(Error::Done)));
        }
    }

    #[test]
    fn a_piece_in_the_middle_has_whole_blocks_and_none_is_too_long() {
        let interface = Accelerator::Aes256Ctr.interface();
        assert_eq!(most_bytes(&interface), 4_000_000);
        let mut cut = Cut::default();
        let next = cut.next(&interface, 17, Position::BeforeOthers);
        assert!(matches!(next, Err(Error::Block { given: 17, block: 16 })));
        let next = cut.next(&interface, 4_000_016, Position::BeforeOthers);
        assert!(matches!(next, Err(Error::Size { given: 4_000_016, most: 4_000_000 })));
        assert_eq!(cut, Cut::default(), "a refused piece changes nothing");
        assert_eq!(cut.next(&interface, 0, Position::BeforeOthers).unwrap(), None);
        assert_eq!(cut.next(&interface, 17, Position::Last).unwrap().unwrap().output, 0..17);
    }

    #[test]
    fn an_empty_stream_has_a_piece_only_where_something_comes_out() {
        let empty = |accelerator: Accelerator| {
            Cut::default()
                .next(&accelerator.interface(), 0, Position::Last)
                .unwrap()
                .map(|chunk| chunk.output)
        };
        assert_eq!(empty(Accelerator::Sha256), Some(0..32));
        assert_eq!(empty(Accelerator::Aes256Ctr), None);
    }
}

//! Shared memory between a client and a manager on one node: constants, and checks of ranges, for both sides.
//!
//! A segment is a sealed memfd that the manager makes for one session and passes over a side socket. Both sides may
//! write to it at any time, so nothing is parsed in it; every range comes in a message and is checked.

use crate::v1;

/// The size of a segment is a multiple of this.
pub const PAGE_BYTES: u64 = 4096;

/// The offset of a range is a multiple of this: a cache line, so that vendors copy at full speed.
pub const RANGE_ALIGNMENT: u64 = 64;

/// The finest alignment of a buffer's storage in bytes: the size of the largest type of OpenCL C, `double16`, and
/// the alignment that the known CPU runtimes state for sub-buffers.
pub const STORAGE_ALIGNMENT: u64 = 128;

/// Greatest size of a segment, in bytes.
pub const MAX_SEGMENT_BYTES: u64 = 4 << 30;

/// Greatest number of segments of one session.
pub const MAX_SEGMENTS: usize = 256;

/// Where placed segments lie: addresses that programs, their libraries, and the kernel's choices leave free.
pub const PLACED_ADDRESSES: std::ops::Range<u64> = (32 << 40)..(64 << 40);

/// Size of the key in a Welcome that opens the side socket.
pub const KEY_BYTES: usize = 32;

/// The byte that the manager sends on the side socket when it has accepted the key.
pub const TAKEN: u8 = 1;

/// Suffix that makes the path of the side socket from the path of a manager's unix socket.
pub const SIDE_SUFFIX: &str = ".fd";

/// Environment variable; `off` disables shared memory in a client or a manager.
pub const VARIABLE: &str = "FPGA_SHARED_MEMORY";

/// Words of 8 bytes in each direction of the command ring that a manager offers.
pub const RING_WORDS: u32 = 16 * 1024;

/// Environment variable; `off` disables the command ring in a client or a manager.
pub const RING_VARIABLE: &str = "FPGA_COMMAND_RING";

/// A reason why a range of a segment can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The session has no segment with this id.
    #[error("the session has no segment {0}")]
    Unknown(u64),
    /// The range has no bytes.
    #[error("a range of a segment is empty")]
    Empty,
    /// The offset is not a multiple of [`RANGE_ALIGNMENT`], or of the manager's alignment for a buffer's storage.
    #[error("a range begins at {0}, where none begins")]
    Misaligned(u64),
    /// The range ends behind the segment, or its end overflows.
    #[error("a range ends behind its segment")]
    Outside,
    /// The length of the range differs from the length in the command.
    #[error("a range has another length than its command")]
    Length,
}

/// A reason why a segment of some size can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The size is 0 or greater than [`MAX_SEGMENT_BYTES`].
    #[error("a segment has {0} bytes; 1 to {MAX_SEGMENT_BYTES} are given")]
    Bytes(u64),
    /// The size is not a multiple of [`PAGE_BYTES`].
    #[error("a segment has {0} bytes, which are no whole pages of {PAGE_BYTES}")]
    Pages(u64),
}

/// Checks a range of a segment of `segment_bytes`. Returns the offset and the length of the range.
///
/// # Errors
/// [`RangeError::Empty`], [`RangeError::Misaligned`] or [`RangeError::Outside`].
pub fn check_range(range: &v1::SegmentRange, segment_bytes: usize) -> Result<(usize, usize), RangeError> {
    if range.length == 0 {
        return Err(RangeError::Empty);
    }
    if !range.offset.is_multiple_of(RANGE_ALIGNMENT) {
        return Err(RangeError::Misaligned(range.offset));
    }
    let end = range.offset.checked_add(range.length).ok_or(RangeError::Outside)?;
    if end > segment_bytes as u64 {
        return Err(RangeError::Outside);
    }
    let convert = |number| usize::try_from(number).map_err(|_| RangeError::Outside);
    Ok((convert(range.offset)?, convert(range.length)?))
}

/// Checks the range of a buffer's storage, which must begin at a multiple of `alignment` bytes and be as long as the
/// buffer.
///
/// # Errors
/// [`RangeError::Misaligned`] or [`RangeError::Length`].
pub fn check_storage(range: &v1::SegmentRange, buffer_bytes: u64, alignment: u64) -> Result<(), RangeError> {
    if !range.offset.is_multiple_of(alignment) {
        return Err(RangeError::Misaligned(range.offset));
    }
    if range.length == buffer_bytes { Ok(()) } else { Err(RangeError::Length) }
}

/// Checks the requested size of a segment.
///
/// # Errors
/// [`SizeError`] for 0, more than [`MAX_SEGMENT_BYTES`], or no multiple of [`PAGE_BYTES`].
pub fn check_size(bytes: u64) -> Result<usize, SizeError> {
    if bytes == 0 || bytes > MAX_SEGMENT_BYTES {
        return Err(SizeError::Bytes(bytes));
    }
    if !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(SizeError::Pages(bytes));
    }
    usize::try_from(bytes).map_err(|_| SizeError::Bytes(bytes))
}

/// Checks the address of a placed segment of `bytes`. Returns it.
///
/// # Errors
/// [`RangeError::Misaligned`] or [`RangeError::Outside`].
pub fn check_address(address: u64, bytes: u64) -> Result<usize, RangeError> {
    if !address.is_multiple_of(PAGE_BYTES) {
        return Err(RangeError::Misaligned(address));
    }
    let end = address.checked_add(bytes).ok_or(RangeError::Outside)?;
    if address < PLACED_ADDRESSES.start || end > PLACED_ADDRESSES.end {
        return Err(RangeError::Outside);
    }
    usize::try_from(address).map_err(|_| RangeError::Outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placed_segments_lie_in_their_range_whatever_the_numbers() {
        let (first, last) = (PLACED_ADDRESSES.start, PLACED_ADDRESSES.end);
        assert_eq!(check_address(first, PAGE_BYTES), Ok(1 << 45));
        assert_eq!(check_address(last - PAGE_BYTES, PAGE_BYTES), Ok((1 << 46) - 4096));
        assert_eq!(check_address(first + 1, 1), Err(RangeError::Misaligned(first + 1)));
        for (address, bytes) in
            [(0, 1), (first - PAGE_BYTES, PAGE_BYTES), (last - PAGE_BYTES, 4097), (last, 1)]
        {
            assert_eq!(check_address(address, bytes), Err(RangeError::Outside));
        }
        assert_eq!(check_address(first, u64::MAX), Err(RangeError::Outside));
    }

    fn range(offset: u64, length: u64) -> v1::SegmentRange {
        v1::SegmentRange { segment: 1, offset, length }
    }

    #[test]
    fn ranges_lie_inside_their_segment_whatever_the_numbers() {
        assert_eq!(check_range(&range(64, 4032), 4096), Ok((64, 4032)));
        assert_eq!(check_range(&range(0, 1), 4096), Ok((0, 1)));
        assert_eq!(check_range(&range(0, 0), 4096), Err(RangeError::Empty));
        assert_eq!(check_range(&range(1, 1), 4096), Err(RangeError::Misaligned(1)));
        for (offset, length) in [(0, 4097), (64, 4033), (4096, 1), (64, u64::MAX), (u64::MAX - 63, 64)] {
            assert_eq!(check_range(&range(offset, length), 4096), Err(RangeError::Outside));
        }
    }

    #[test]
    fn buffers_are_aligned_as_the_manager_demands() {
        for alignment in [STORAGE_ALIGNMENT, PAGE_BYTES] {
            assert_eq!(check_storage(&range(alignment, 100), 100, alignment), Ok(()));
            assert_eq!(check_storage(&range(64, 100), 100, alignment), Err(RangeError::Misaligned(64)));
            assert_eq!(check_storage(&range(0, 100), 101, alignment), Err(RangeError::Length));
        }
        assert_eq!(check_storage(&range(128, 100), 100, PAGE_BYTES), Err(RangeError::Misaligned(128)));
    }

    #[test]
    fn segments_are_whole_pages_and_not_too_many() {
        assert_eq!(check_size(8192), Ok(8192));
        for bytes in [0, MAX_SEGMENT_BYTES + PAGE_BYTES, u64::MAX] {
            assert_eq!(check_size(bytes), Err(SizeError::Bytes(bytes)));
        }
        assert_eq!(check_size(4097), Err(SizeError::Pages(4097)));
    }
}

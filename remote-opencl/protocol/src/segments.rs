//! Shared memory between a client and a manager of one node: what both sides must agree on, and the checks of it.
//!
//! A segment is a sealed memfd that the manager makes for one session and passes over a socket beside its own. Both
//! sides may write to it at any time: nothing is ever parsed from it, and every range comes in a message and is checked.

use crate::v1;

/// Granularity of the sizes of segments.
pub const PAGE_BYTES: u64 = 4096;

/// Where ranges begin: a cache line, so that vendors copy at full speed.
pub const RANGE_ALIGNMENT: u64 = 64;

/// Largest segment.
pub const MAX_SEGMENT_BYTES: u64 = 4 << 30;

/// Most segments of one session.
pub const MAX_SEGMENTS: usize = 256;

/// Bytes of the key that a Welcome gives for the side socket.
pub const KEY_BYTES: usize = 32;

/// What the manager says on the side socket when it has taken the key.
pub const TAKEN: u8 = 1;

/// Appended to the path of a manager's unix socket: the side socket.
pub const SIDE_SUFFIX: &str = ".fd";

/// Environment variable with which a client or a manager does without: `off`.
pub const VARIABLE: &str = "FPGA_SHARED_MEMORY";

/// Words of 8 bytes in each direction of a command ring: what a manager offers.
pub const RING_WORDS: u32 = 16 * 1024;

/// Environment variable with which a client or a manager does without the command ring: `off`.
pub const RING_VARIABLE: &str = "FPGA_COMMAND_RING";

/// Why a range of a segment can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The session has no such segment.
    #[error("the session has no segment {0}")]
    Unknown(u64),
    /// It has no bytes.
    #[error("a range of a segment is empty")]
    Empty,
    /// It begins where no range begins.
    #[error("a range begins at {0}, where none begins")]
    Misaligned(u64),
    /// It ends behind the segment, or where no number is.
    #[error("a range ends behind its segment")]
    Outside,
    /// It has another length than the command that refers to it.
    #[error("a range has another length than its command")]
    Length,
}

/// Why a segment can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// 0, or too many.
    #[error("a segment has {0} bytes; 1 to {MAX_SEGMENT_BYTES} are given")]
    Bytes(u64),
    /// No whole pages.
    #[error("a segment has {0} bytes, which are no whole pages of {PAGE_BYTES}")]
    Pages(u64),
}

/// Checks a range of a segment of `segment_bytes`; where it begins, and how long it is.
///
/// # Errors
/// [`RangeError`].
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

/// Checks a range that a buffer is to lie in: it also begins with a page.
///
/// # Errors
/// [`RangeError`].
pub fn check_storage(range: &v1::SegmentRange, buffer_bytes: u64) -> Result<(), RangeError> {
    if !range.offset.is_multiple_of(PAGE_BYTES) {
        return Err(RangeError::Misaligned(range.offset));
    }
    if range.length == buffer_bytes { Ok(()) } else { Err(RangeError::Length) }
}

/// Checks the size of a segment that somebody asks for.
///
/// # Errors
/// [`SizeError`].
pub fn check_size(bytes: u64) -> Result<usize, SizeError> {
    if bytes == 0 || bytes > MAX_SEGMENT_BYTES {
        return Err(SizeError::Bytes(bytes));
    }
    if !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(SizeError::Pages(bytes));
    }
    usize::try_from(bytes).map_err(|_| SizeError::Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn buffers_lie_in_whole_pages() {
        assert_eq!(check_storage(&range(4096, 100), 100), Ok(()));
        assert_eq!(check_storage(&range(64, 100), 100), Err(RangeError::Misaligned(64)));
        assert_eq!(check_storage(&range(0, 100), 101), Err(RangeError::Length));
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

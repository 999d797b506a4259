//! Rectangles of bytes in buffers, checked before the vendor gets them: every byte must lie inside the buffer.

use crate::images::triple;
use crate::vendor::{ClError, ClResult};
use fpga_protocol::v1;
use opencl_sys::CL_INVALID_VALUE;

const INVALID: ClError = ClError(CL_INVALID_VALUE);

/// The position of a rectangle in a buffer that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The first byte in the row, the first row, and the first slice.
    pub origin: [usize; 3],
    /// Bytes from a row to the next one.
    pub row_pitch: usize,
    /// Bytes from a slice to the next one.
    pub slice_pitch: usize,
}

/// The size of a rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row, number of rows, and number of slices.
    pub size: [usize; 3],
    /// Bytes of the whole rectangle.
    pub bytes: usize,
}

impl Extent {
    /// The extent of a message.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the extent is empty or larger than any memory.
    pub fn new(region: &[u64]) -> ClResult<Self> {
        let size = triple(region)?;
        let [line, rows, slices] = size;
        let bytes = line.checked_mul(rows).and_then(|slice| slice.checked_mul(slices));
        let bytes = bytes.filter(|bytes| *bytes > 0 && isize::try_from(*bytes).is_ok()).ok_or(INVALID)?;
        Ok(Self { size, bytes })
    }
}

impl Layout {
    /// The layout of a message, for a rectangle of this extent in a buffer of `room` bytes.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if rows or slices overlap, or the buffer does not contain the whole rectangle.
    pub fn new(layout: Option<&v1::RectLayout>, extent: Extent, room: usize) -> ClResult<Self> {
        let layout = layout.ok_or(INVALID)?;
        let convert = |number: u64| usize::try_from(number).map_err(|_| INVALID);
        let (row_pitch, slice_pitch) = (convert(layout.row_pitch)?, convert(layout.slice_pitch)?);
        let origin = triple(&layout.origin)?;
        let [line, rows, slices] = extent.size;
        let times = |a: usize, b: usize| a.checked_mul(b).ok_or(INVALID);
        if row_pitch < line || slice_pitch < times(rows, row_pitch)? || !slice_pitch.is_multiple_of(row_pitch)
        {
            return Err(INVALID);
        }
        let last = |origin: usize, count: usize| origin.checked_add(count - 1).ok_or(INVALID);
        let parts = [
            times(last(origin[2], slices)?, slice_pitch)?,
            times(last(origin[1], rows)?, row_pitch)?,
            origin[0],
            line,
        ];
        let end = parts.into_iter().try_fold(0_usize, usize::checked_add).ok_or(INVALID)?;
        if end > room { Err(INVALID) } else { Ok(Self { origin, row_pitch, slice_pitch }) }
    }

    /// The layout of a rectangle without gaps.
    #[must_use]
    pub fn tight(extent: Extent) -> Self {
        let [line, rows, _] = extent.size;
        // The product does not overflow: it is at most the extent's bytes.
        Self { origin: [0; 3], row_pitch: line, slice_pitch: line * rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(origin: [u64; 3], row_pitch: u64, slice_pitch: u64) -> v1::RectLayout {
        v1::RectLayout { origin: origin.to_vec(), row_pitch, slice_pitch }
    }

    #[test]
    fn a_rectangle_ends_where_its_last_byte_is() {
        let extent = Extent::new(&[4, 3, 2]).unwrap();
        assert_eq!(extent.bytes, 24);
        // 2 + 1 x 16 + 1 x 64, then two rows, one slice, and four bytes.
        let (named, end) = (layout([2, 1, 1], 16, 64), 2 + 16 + 64 + 32 + 64 + 4);
        let expected = Layout { origin: [2, 1, 1], row_pitch: 16, slice_pitch: 64 };
        assert_eq!(Layout::new(Some(&named), extent, end), Ok(expected));
        assert_eq!(Layout::new(Some(&named), extent, end - 1), Err(INVALID));
        assert_eq!(Layout::tight(extent), Layout { origin: [0; 3], row_pitch: 4, slice_pitch: 12 });
    }

    #[test]
    fn numbers_of_a_hostile_client_are_refused() {
        for region in [&[4, 0, 1][..], &[4, 1], &[u64::MAX, 1, 1], &[1 << 40, 1 << 40, 1]] {
            assert_eq!(Extent::new(region), Err(INVALID), "{region:?}");
        }
        let extent = Extent::new(&[4, 2, 2]).unwrap();
        for named in [
            layout([0; 3], 3, 8),
            layout([0; 3], 4, 4),
            layout([0; 3], 4, 9),
            layout([0; 3], 0, 0),
            layout([u64::MAX, 0, 0], 4, 8),
            layout([0, u64::MAX, 0], 4, 8),
            layout([0, 0, u64::MAX / 8], 4, 8),
            layout([0; 3], u64::MAX, u64::MAX),
            v1::RectLayout { origin: vec![0; 2], row_pitch: 4, slice_pitch: 8 },
        ] {
            assert_eq!(Layout::new(Some(&named), extent, usize::MAX), Err(INVALID), "{named:?}");
        }
        assert_eq!(Layout::new(None, extent, usize::MAX), Err(INVALID));
    }
}

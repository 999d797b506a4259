//! Rectangles of bytes in buffers, checked before the vendor gets them (every byte must lie inside the buffer), and
//! regions of images.

use fpga_protocol::cl_error::{ClError, ClResult};

/// The position of a rectangle in a buffer that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The first byte in the row, the first row, and the first slice.
    pub(crate) origin: [usize; 3],
    /// Bytes from a row to the next one.
    pub(crate) row_pitch: usize,
    /// Bytes from a slice to the next one.
    pub(crate) slice_pitch: usize,
}

/// The size of a rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row, number of rows, and number of slices.
    pub(crate) size: [usize; 3],
    /// Bytes of the whole rectangle.
    bytes: usize,
}

/// A region of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first pixel.
    pub origin: [usize; 3],
    /// The number of pixels in each dimension.
    pub size: [usize; 3],
}

impl Extent {
    /// The extent of `size`: bytes of a row, number of rows, and number of slices.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the extent is empty or larger than any memory.
    pub fn new(size: [usize; 3]) -> ClResult<Self> {
        let [line, rows, slices] = size;
        let bytes = line.checked_mul(rows).and_then(|slice| slice.checked_mul(slices));
        let bytes = bytes.filter(|bytes| *bytes > 0 && isize::try_from(*bytes).is_ok());
        Ok(Self { size, bytes: bytes.ok_or(ClError::INVALID_VALUE)? })
    }

    /// Bytes of the whole rectangle.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Layout {
    /// The layout of a rectangle of this extent in a buffer of `room` bytes. `origin` is the first byte in the row, the
    /// first row, and the first slice; the pitches are bytes from a row, and a slice, to the next one.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if rows or slices overlap, or the buffer does not contain the whole rectangle.
    pub fn new(
        origin: [usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
        extent: Extent,
        room: usize,
    ) -> ClResult<Self> {
        const INVALID: ClError = ClError::INVALID_VALUE;
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

    const INVALID: ClError = ClError::INVALID_VALUE;

    #[test]
    fn a_rectangle_ends_where_its_last_byte_is() {
        let extent = Extent::new([4, 3, 2]).unwrap();
        assert_eq!(extent.bytes(), 24);
        // 2 + 1 x 16 + 1 x 64, then two rows, one slice, and four bytes.
        let end = 2 + 16 + 64 + 32 + 64 + 4;
        let expected = Layout { origin: [2, 1, 1], row_pitch: 16, slice_pitch: 64 };
        assert_eq!(Layout::new([2, 1, 1], 16, 64, extent, end), Ok(expected));
        assert_eq!(Layout::new([2, 1, 1], 16, 64, extent, end - 1), Err(INVALID));
        assert_eq!(Layout::tight(extent), Layout { origin: [0; 3], row_pitch: 4, slice_pitch: 12 });
    }

    #[test]
    fn numbers_of_a_hostile_client_are_refused() {
        for size in [[4, 0, 1], [usize::MAX, 1, 1], [1 << 40, 1 << 40, 1]] {
            assert_eq!(Extent::new(size), Err(INVALID), "{size:?}");
        }
        let extent = Extent::new([4, 2, 2]).unwrap();
        for (origin, row_pitch, slice_pitch) in [
            ([0; 3], 3, 8),
            ([0; 3], 4, 4),
            ([0; 3], 4, 9),
            ([0; 3], 0, 0),
            ([usize::MAX, 0, 0], 4, 8),
            ([0, usize::MAX, 0], 4, 8),
            ([0, 0, usize::MAX / 8], 4, 8),
            ([0; 3], usize::MAX, usize::MAX),
        ] {
            let layout = Layout::new(origin, row_pitch, slice_pitch, extent, usize::MAX);
            assert_eq!(layout, Err(INVALID), "{origin:?} {row_pitch} {slice_pitch}");
        }
    }
}

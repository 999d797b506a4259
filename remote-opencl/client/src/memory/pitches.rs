//! The layout of an image's region in host memory: rows and slices at pitches. Pure arithmetic, every step checked.
//!
//! Messages have no gaps; bytes are packed and scattered here.

use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::memory::rect::Layout;
use bytes::{Bytes, BytesMut};
use fpga_protocol::images::kind;

/// The layout of a region in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pitches {
    /// Bytes of a row without the gap.
    line: usize,
    rows: usize,
    slices: usize,
    /// Bytes from the beginning of a row to the beginning of the next.
    row: usize,
    slice: usize,
}

impl Pitches {
    /// The layout of a region of an image of this kind; a pitch of 0 means no gaps.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for pitches that are smaller than the region.
    pub(crate) fn new(
        image_kind: u32,
        element: usize,
        region: [usize; 3],
        row_pitch: usize,
        slice_pitch: usize,
    ) -> Result<Self> {
        let times = |a: usize, b: usize| a.checked_mul(b).ok_or(ClError::INVALID_VALUE);
        let [width, rows, slices] = region;
        let line = times(width, element)?;
        let row_pitch = if row_pitch == 0 { line } else { row_pitch };
        // The rows of a region of a 1D array are images of their own, so the slice pitch separates them.
        let row = match slice_pitch {
            pitch if image_kind == kind::IMAGE1D_ARRAY && pitch != 0 => pitch,
            _ => row_pitch,
        };
        let tight = times(row, rows)?;
        let layered = [kind::IMAGE3D, kind::IMAGE2D_ARRAY].contains(&image_kind);
        let slice = if layered && slice_pitch != 0 { slice_pitch } else { tight };
        if row_pitch < line || row < line || slice < tight {
            return Err(ClError::INVALID_VALUE);
        }
        let pitches = Self { line, rows, slices, row, slice };
        pitches.checked_span().map(|_| pitches)
    }

    /// The layout of a rectangle of bytes.
    pub(crate) fn of_rect(layout: Layout, [line, rows, slices]: [usize; 3]) -> Self {
        Self { line, rows, slices, row: layout.row_pitch, slice: layout.slice_pitch }
    }

    fn checked_span(&self) -> Result<usize> {
        let last = |count: usize, step: usize| count.saturating_sub(1).checked_mul(step);
        let span = last(self.slices, self.slice)
            .zip(last(self.rows, self.row))
            .and_then(|(slices, rows)| slices.checked_add(rows)?.checked_add(self.line));
        span.filter(|span| isize::try_from(*span).is_ok()).ok_or(ClError::INVALID_VALUE)
    }

    /// Bytes from the first to the last byte of the region.
    pub(crate) fn span(&self) -> usize {
        // `new` has checked the sum.
        self.checked_span().unwrap_or(0)
    }

    /// Bytes of the region without gaps.
    pub(crate) fn bytes(&self) -> usize {
        self.line * self.rows * self.slices
    }

    /// Bytes of the region with all gaps, including the one after the last row.
    pub(crate) fn whole(&self) -> usize {
        self.slices.saturating_mul(self.slice)
    }

    /// Whether there are no gaps.
    pub(crate) fn is_tight(&self) -> bool {
        self.bytes() == self.span()
    }

    /// Offset of a pixel in the memory.
    pub(crate) fn offset(&self, element: usize, origin: [usize; 3]) -> usize {
        origin[0] * element + origin[1] * self.row + origin[2] * self.slice
    }

    /// The layout of a region of this memory, with the same pitches.
    pub(crate) fn part(&self, element: usize, region: [usize; 3]) -> Self {
        Self { line: region[0] * element, rows: region[1], slices: region[2], ..*self }
    }

    /// `CL_IMAGE_ROW_PITCH` and `CL_IMAGE_SLICE_PITCH`, as the standard defines them for this kind.
    pub(crate) fn reported(&self, image_kind: u32) -> (usize, usize) {
        match image_kind {
            kind::IMAGE3D | kind::IMAGE2D_ARRAY => (self.row, self.slice),
            kind::IMAGE1D_ARRAY => (self.row, self.row),
            _ => (self.row, 0),
        }
    }

    fn lines(self) -> impl Iterator<Item = usize> {
        (0..self.slices)
            .flat_map(move |slice| (0..self.rows).map(move |row| slice * self.slice + row * self.row))
    }

    /// Copies the region's bytes without gaps.
    pub(crate) fn pack(&self, source: &HostSource) -> Bytes {
        let mut packed = BytesMut::with_capacity(self.bytes());
        for at in self.lines() {
            source.copy_to(at, self.line, &mut packed);
        }
        packed.freeze()
    }

    /// Copies bytes without gaps to their places in `target`. Returns false if they don't fit.
    pub(crate) fn scatter(&self, packed: &[u8], target: &mut HostTarget) -> bool {
        packed.len() == self.bytes()
            && self.lines().zip(packed.chunks(self.line.max(1))).all(|(at, line)| target.write(at, line))
    }
}

/// The destination of a read whose rows have gaps.
#[derive(Debug)]
pub(crate) struct Scatter {
    /// The application's memory.
    pub(crate) target: HostTarget,
    /// Layout of the region in `target`.
    pub(crate) pitches: Pitches,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::Shadow;

    #[test]
    fn rows_and_slices_with_gaps_are_packed_and_scattered_back() {
        let pitches = Pitches::new(kind::IMAGE3D, 2, [2, 2, 2], 6, 20).unwrap();
        assert_eq!((pitches.span(), pitches.bytes(), pitches.is_tight()), (30, 16, false));
        let bytes: Vec<u8> = (0..30).collect();
        let packed = pitches.pack(&HostSource::owned(bytes));
        assert_eq!(&packed[..], [0, 1, 2, 3, 6, 7, 8, 9, 20, 21, 22, 23, 26, 27, 28, 29]);
        let mut target = Shadow::allocate(30).unwrap();
        assert!(pitches.scatter(&packed, &mut target));
        assert_eq!(pitches.pack(&HostSource::owned(target.capture())), packed);
        assert!(!pitches.scatter(&packed[1..], &mut target));
    }

    #[test]
    fn the_images_of_a_1d_array_are_a_slice_pitch_apart() {
        let pitches = Pitches::new(kind::IMAGE1D_ARRAY, 1, [3, 2, 1], 0, 8).unwrap();
        assert_eq!(pitches.span(), 11);
        assert_eq!(pitches.reported(kind::IMAGE1D_ARRAY), (8, 8));
    }

    #[test]
    fn pitches_that_are_too_small_or_too_large_are_refused() {
        let new = |region, row, slice| Pitches::new(kind::IMAGE3D, 4, region, row, slice);
        assert!(new([2, 2, 1], 4, 0).is_err());
        assert!(new([2, 2, 2], 8, 12).is_err());
        assert!(new([2, 2, 2], usize::MAX / 2, 0).is_err());
        assert!(new([usize::MAX, 1, 1], 0, 0).is_err());
        assert!(new([2, 2, 2], 8, 16).unwrap().is_tight());
    }

    #[test]
    fn a_part_keeps_the_distances() {
        let whole = Pitches::new(kind::IMAGE2D, 4, [10, 10, 1], 64, 0).unwrap();
        assert_eq!(whole.offset(4, [2, 3, 0]), 200);
        assert_eq!(whole.part(4, [2, 2, 1]).span(), 72);
    }
}

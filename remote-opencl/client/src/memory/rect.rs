//! The geometry of rectangular transfers: the positions of the rows' bytes.
//!
//! Pure arithmetic on the application's numbers; every step is checked.

use crate::error::{ClError, Result};
use fpga_protocol::v1;

const INVALID: ClError = ClError::INVALID_VALUE;

/// The position of a rectangle in a memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    origin: [usize; 3],
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

/// A contiguous stretch of a transfer between two memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Offset in the first memory.
    pub(crate) from: usize,
    /// Offset in the second memory.
    pub(crate) to: usize,
    /// Length in bytes.
    pub(crate) length: usize,
}

impl Layout {
    /// A layout with the given pitches; a pitch of 0 means no gaps.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for an empty region, or for pitches that don't fit the region.
    pub fn new(origin: [usize; 3], region: [usize; 3], row_pitch: usize, slice_pitch: usize) -> Result<Self> {
        if region.contains(&0) {
            return Err(INVALID);
        }
        let row_pitch = if row_pitch == 0 { region[0] } else { row_pitch };
        let tight = region[1].checked_mul(row_pitch).ok_or(INVALID)?;
        let slice_pitch = if slice_pitch == 0 { tight } else { slice_pitch };
        if row_pitch < region[0] || slice_pitch < tight || !slice_pitch.is_multiple_of(row_pitch) {
            return Err(INVALID);
        }
        let layout = Self { origin, row_pitch, slice_pitch };
        layout.end(region).map(|_| layout)
    }

    /// Offset behind the rectangle's last byte.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` if the offset exceeds `isize::MAX`.
    pub fn end(&self, region: [usize; 3]) -> Result<usize> {
        let at = |step: usize, pitch: usize| step.checked_mul(pitch).ok_or(INVALID);
        let sum =
            |a: usize, b: usize| a.checked_add(b).filter(|end| isize::try_from(*end).is_ok()).ok_or(INVALID);
        let mut end = sum(self.origin[0], region[0])?;
        for (axis, pitch) in [(1, self.row_pitch), (2, self.slice_pitch)] {
            end = sum(end, at(self.origin[axis], pitch)?)?;
            end = sum(end, at(region[axis] - 1, pitch)?)?;
        }
        Ok(end)
    }

    /// Offset of the rectangle's first byte.
    pub fn start(&self) -> usize {
        // This can't overflow, since `new` has computed a greater offset.
        self.origin[0] + self.origin[1] * self.row_pitch + self.origin[2] * self.slice_pitch
    }

    /// The layout as a message.
    pub(crate) fn message(&self) -> v1::RectLayout {
        v1::RectLayout {
            origin: wide(self.origin),
            row_pitch: self.row_pitch as u64,
            slice_pitch: self.slice_pitch as u64,
        }
    }

    fn has_pitches_of(&self, other: &Self) -> bool {
        self.row_pitch == other.row_pitch && self.slice_pitch == other.slice_pitch
    }
}

/// Converts three numbers for a message.
pub(crate) fn wide(numbers: [usize; 3]) -> Vec<u64> {
    numbers.map(|number| number as u64).to_vec()
}

/// The stretches of a transfer of `region` between two memories, as few as possible.
pub(crate) fn stretches(from: Layout, to: Layout, region: [usize; 3]) -> impl Iterator<Item = Stretch> {
    let [mut length, mut rows, mut slices] = region;
    let tight = |from_pitch, to_pitch, length| from_pitch == length && to_pitch == length;
    // Rows without gaps form one stretch, and so do slices. The products can't overflow, since `Layout::end` has
    // computed greater ones.
    if rows == 1 || tight(from.row_pitch, to.row_pitch, length) {
        length *= rows;
        rows = 1;
    }
    if rows == 1 && (slices == 1 || tight(from.slice_pitch, to.slice_pitch, length)) {
        length *= slices;
        slices = 1;
    }
    (0..slices).flat_map(move |slice| {
        (0..rows).map(move |row| Stretch {
            from: from.start() + slice * from.slice_pitch + row * from.row_pitch,
            to: to.start() + slice * to.slice_pitch + row * to.row_pitch,
            length,
        })
    })
}

/// Checks whether a copy within one buffer is allowed, by the standard's algorithm (OpenCL 1.2, appendix E).
///
/// # Errors
/// `CL_INVALID_VALUE` for different pitches, `CL_MEM_COPY_OVERLAP` if the rectangles overlap.
pub(crate) fn check_copy_inside(from: Layout, to: Layout, region: [usize; 3]) -> Result<()> {
    if !from.has_pitches_of(&to) {
        return Err(INVALID);
    }
    let Layout { row_pitch, slice_pitch, .. } = from;
    let slice_size = (region[1] - 1) * row_pitch + region[0];
    let block_size = (region[2] - 1) * slice_pitch + slice_size;
    let apart = |a: usize, b: usize, size: usize| a + size <= b || b + size <= a;
    // Whether one range fits into the gap of the other, modulo the pitch.
    let in_gap = |a: usize, b: usize, size: usize, pitch: usize| {
        (b >= a + size && b + size <= a + pitch) || (a >= b + size && a + size <= b + pitch)
    };
    let column = |layout: &Layout| layout.origin[0] % row_pitch;
    let row = |layout: &Layout| (layout.origin[1] * row_pitch + layout.origin[0]) % slice_pitch;
    if apart(from.start(), to.start(), block_size)
        || in_gap(column(&from), column(&to), region[0], row_pitch)
        || in_gap(row(&from), row(&to), slice_size, slice_pitch)
    {
        Ok(())
    } else {
        Err(ClError::MEM_COPY_OVERLAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(origin: [usize; 3], region: [usize; 3], row: usize, slice: usize) -> Layout {
        Layout::new(origin, region, row, slice).unwrap()
    }

    #[test]
    fn tight_rectangles_are_one_stretch() {
        let region = [8, 4, 2];
        let tight = layout([0; 3], region, 0, 0);
        let all: Vec<_> = stretches(tight, tight, region).collect();
        assert_eq!(all, [Stretch { from: 0, to: 0, length: 64 }]);
    }

    #[test]
    fn rows_and_slices_lie_where_the_pitches_say() {
        let region = [2, 2, 2];
        let from = layout([1, 1, 1], region, 10, 100);
        let to = layout([0; 3], region, 0, 0);
        let all: Vec<_> = stretches(from, to, region).collect();
        let expected = [(111, 0), (121, 2), (211, 4), (221, 6)];
        assert_eq!(all, expected.map(|(from, to)| Stretch { from, to, length: 2 }));
        assert_eq!(from.end(region), Ok(223));
    }

    #[test]
    fn slices_of_one_row_need_not_be_tight_in_rows() {
        let region = [4, 1, 3];
        let from = layout([0; 3], region, 16, 16);
        let to = layout([0; 3], region, 4, 4);
        assert_eq!(stretches(from, to, region).count(), 3);
        assert_eq!(stretches(to, to, region).count(), 1);
    }

    #[test]
    fn pitches_that_the_region_does_not_fit_into_are_refused() {
        for (region, row, slice) in [
            ([0, 1, 1], 0, 0),
            ([8, 1, 1], 4, 0),
            ([8, 4, 1], 8, 16),
            ([8, 2, 1], 8, 20),
            ([8, usize::MAX, 2], 0, 0),
        ] {
            assert_eq!(Layout::new([0; 3], region, row, slice).unwrap_err(), INVALID, "{region:?}");
        }
        assert_eq!(Layout::new([usize::MAX, 0, 0], [1; 3], 0, 0).unwrap_err(), INVALID);
        assert_eq!(Layout::new([0, 0, usize::MAX / 2], [4; 3], 0, 0).unwrap_err(), INVALID);
    }

    #[test]
    fn overlap_is_seen_and_interleaving_is_allowed() {
        let region = [4, 4, 1];
        let at = |x, y| layout([x, y, 0], region, 16, 256);
        assert_eq!(check_copy_inside(at(0, 0), at(2, 2), region), Err(ClError::MEM_COPY_OVERLAP));
        assert_eq!(check_copy_inside(at(0, 0), at(4, 0), region), Ok(()), "beside");
        assert_eq!(check_copy_inside(at(0, 0), at(0, 4), region), Ok(()), "below");
        assert_eq!(check_copy_inside(at(0, 0), layout([0; 3], region, 8, 0), region), Err(INVALID));
    }

    #[test]
    fn stretches_cover_the_region_once() {
        let region = [3, 5, 2];
        let from = layout([1, 2, 0], region, 7, 70);
        let to = layout([0, 1, 1], region, 3, 21);
        let mut bytes = std::collections::BTreeSet::new();
        for stretch in stretches(from, to, region) {
            for at in 0..stretch.length {
                assert!(bytes.insert((stretch.from + at, stretch.to + at)));
            }
        }
        let mut expected = std::collections::BTreeSet::new();
        for z in 0..2 {
            for y in 0..5 {
                for x in 0..3 {
                    expected.insert((1 + x + (2 + y) * 7 + z * 70, x + (1 + y) * 3 + (1 + z) * 21));
                }
            }
        }
        assert_eq!(bytes, expected);
    }
}

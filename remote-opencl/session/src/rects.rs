//! Rectangles of bytes in messages.

use crate::images::triple;
use fpga_protocol::v1;
use fpga_vendor::{ClError, ClResult, Extent, Layout};

/// The extent of a message.
///
/// # Errors
/// `CL_INVALID_VALUE` if the extent is empty or larger than any memory.
pub fn extent(region: &[u64]) -> ClResult<Extent> {
    Extent::new(triple(region)?)
}

/// The layout of a message, for a rectangle of this extent in a buffer of `room` bytes.
///
/// # Errors
/// `CL_INVALID_VALUE` if rows or slices overlap, or the buffer does not contain the whole rectangle.
pub fn layout(layout: Option<&v1::RectLayout>, extent: Extent, room: usize) -> ClResult<Layout> {
    let layout = layout.ok_or(ClError::INVALID_VALUE)?;
    let convert = |number: u64| usize::try_from(number).map_err(|_| ClError::INVALID_VALUE);
    let (row_pitch, slice_pitch) = (convert(layout.row_pitch)?, convert(layout.slice_pitch)?);
    Layout::new(triple(&layout.origin)?, row_pitch, slice_pitch, extent, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_and_layouts_need_three_numbers() {
        assert_eq!(extent(&[4, 3, 2]), Extent::new([4, 3, 2]));
        assert_eq!(extent(&[4, 1]), Err(ClError::INVALID_VALUE));
        let extent = extent(&[4, 2, 2]).unwrap();
        let named = v1::RectLayout { origin: vec![1, 0, 0], row_pitch: 8, slice_pitch: 16 };
        assert_eq!(layout(Some(&named), extent, 100), Layout::new([1, 0, 0], 8, 16, extent, 100));
        let short = v1::RectLayout { origin: vec![0; 2], row_pitch: 4, slice_pitch: 8 };
        for named in [Some(&short), None] {
            assert_eq!(layout(named, extent, usize::MAX), Err(ClError::INVALID_VALUE), "{named:?}");
        }
    }
}

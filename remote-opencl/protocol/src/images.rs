//! Images: the size of a pixel and the extent of each kind of image, on which both sides must agree.
//!
//! Pixels travel without gaps. Pitches are not on the wire, except the row pitch of an image in a buffer.

use std::ops::RangeInclusive;

/// Values of `cl_mem_object_type` for images.
pub mod kind {
    #![expect(missing_docs, reason = "the standard's names")]
    pub const IMAGE2D: u32 = 0x10F1;
    pub const IMAGE3D: u32 = 0x10F2;
    pub const IMAGE2D_ARRAY: u32 = 0x10F3;
    pub const IMAGE1D: u32 = 0x10F4;
    pub const IMAGE1D_ARRAY: u32 = 0x10F5;
    pub const IMAGE1D_BUFFER: u32 = 0x10F6;
}

const KINDS: RangeInclusive<u32> = kind::IMAGE2D..=kind::IMAGE1D_BUFFER;

/// Whether a `cl_mem_object_type` is that of an image.
#[must_use]
pub fn is_image(kind: u32) -> bool {
    KINDS.contains(&kind)
}

/// Size of a pixel in bytes for a `cl_channel_order` and a `cl_channel_type`; `None` for an unknown format.
#[must_use]
pub fn element_size(order: u32, channel_type: u32) -> Option<usize> {
    let channels = match order {
        // R, A, Rx, INTENSITY, LUMINANCE, DEPTH
        0x10B0 | 0x10B1 | 0x10BA | 0x10B8 | 0x10B9 | 0x10BD => 1,
        // RG, RA, RGx
        0x10B2 | 0x10B3 | 0x10BB => 2,
        // RGB, sRGB, RGBx
        0x10B4 | 0x10BF | 0x10BC => 3,
        // RGBA, BGRA, ARGB, ABGR, sRGBx, sRGBA, sBGRA
        0x10B5 | 0x10B6 | 0x10B7 | 0x10C3 | 0x10C0 | 0x10C1 | 0x10C2 => 4,
        _ => return None,
    };
    let packed = |wanted: usize, bytes| (channels == wanted).then_some(bytes);
    match channel_type {
        // SNORM_INT8, UNORM_INT8, SIGNED_INT8, UNSIGNED_INT8
        0x10D0 | 0x10D2 | 0x10D7 | 0x10DA => Some(channels),
        // SNORM_INT16, UNORM_INT16, SIGNED_INT16, UNSIGNED_INT16, HALF_FLOAT
        0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => Some(channels * 2),
        // SIGNED_INT32, UNSIGNED_INT32, FLOAT
        0x10D9 | 0x10DC | 0x10DE => Some(channels * 4),
        // UNORM_SHORT_565, UNORM_SHORT_555
        0x10D4 | 0x10D5 => packed(3, 2),
        // UNORM_INT_101010
        0x10D6 => packed(3, 4),
        // UNORM_INT_101010_2
        0x10E0 => packed(4, 4),
        _ => None,
    }
}

/// Greatest value of each coordinate of a region, plus one; `None` for an unknown kind, or if a dimension of the
/// kind is 0.
#[must_use]
pub fn extent(kind: u32, width: usize, height: usize, depth: usize, array_size: usize) -> Option<[usize; 3]> {
    let extent = match kind {
        kind::IMAGE1D | kind::IMAGE1D_BUFFER => [width, 1, 1],
        kind::IMAGE1D_ARRAY => [width, array_size, 1],
        kind::IMAGE2D => [width, height, 1],
        kind::IMAGE2D_ARRAY => [width, height, array_size],
        kind::IMAGE3D => [width, height, depth],
        _ => return None,
    };
    (!extent.contains(&0)).then_some(extent)
}

/// Bytes of a region without gaps; `None` if the number exceeds `isize::MAX`.
#[must_use]
pub fn tight_bytes(element: usize, region: [usize; 3]) -> Option<usize> {
    let bytes = region.iter().try_fold(element, |bytes, axis| bytes.checked_mul(*axis))?;
    isize::try_from(bytes).ok().map(|_| bytes)
}

/// Whether a region is not empty and lies inside an extent.
#[must_use]
pub fn is_inside(extent: [usize; 3], origin: [usize; 3], region: [usize; 3]) -> bool {
    (0..3).all(|axis| {
        region[axis] > 0 && origin[axis].checked_add(region[axis]).is_some_and(|end| end <= extent[axis])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA: u32 = 0x10B5;
    const RGB: u32 = 0x10B4;
    const FLOAT: u32 = 0x10DE;

    #[test]
    fn pixels_have_the_size_of_their_channels_or_of_what_they_are_packed_into() {
        assert_eq!(element_size(RGBA, 0x10DA), Some(4));
        assert_eq!(element_size(RGBA, FLOAT), Some(16));
        assert_eq!(element_size(0x10B2, 0x10DD), Some(4));
        assert_eq!(element_size(RGB, 0x10D4), Some(2));
        assert_eq!(element_size(RGBA, 0x10D4), None, "565 has three channels");
        assert_eq!(element_size(0, FLOAT), None);
        assert_eq!(element_size(RGBA, 0), None);
    }

    #[test]
    fn an_extent_has_the_dimensions_of_its_kind() {
        assert_eq!(extent(kind::IMAGE1D, 5, 0, 0, 0), Some([5, 1, 1]));
        assert_eq!(extent(kind::IMAGE1D_ARRAY, 5, 0, 0, 7), Some([5, 7, 1]));
        assert_eq!(extent(kind::IMAGE2D_ARRAY, 5, 6, 0, 7), Some([5, 6, 7]));
        assert_eq!(extent(kind::IMAGE3D, 5, 6, 8, 0), Some([5, 6, 8]));
        assert_eq!(extent(kind::IMAGE2D, 5, 0, 0, 0), None);
        assert_eq!(extent(0x10F0, 5, 5, 5, 5), None);
    }

    #[test]
    fn regions_outside_are_seen_whatever_their_numbers() {
        let extent = [4, 4, 1];
        assert!(is_inside(extent, [3, 0, 0], [1, 4, 1]));
        assert!(!is_inside(extent, [3, 0, 0], [2, 4, 1]));
        assert!(!is_inside(extent, [usize::MAX, 0, 0], [2, 1, 1]));
        assert!(!is_inside(extent, [0; 3], [1, 1, 0]));
        assert_eq!(tight_bytes(16, [usize::MAX, 2, 1]), None);
        assert_eq!(tight_bytes(4, [2, 3, 5]), Some(120));
    }
}

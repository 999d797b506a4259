//! Images and samplers of a session.
//!
//! A client's description of an image is checked with the arithmetic of the protocol. The vendor's size of a
//! pixel must be the same, since the vendor copies from and to host memory by it.

use crate::buffer::Buffer;
use crate::context::Context;
use crate::quotas::Charge;
use fpga_protocol::images::{element_size, extent, is_inside, tight_bytes};
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, ClError, ClResult, Event, Format, Memory, Region, Shape};
use std::sync::Arc;

/// An image.
#[derive(Debug)]
pub struct Image {
    /// The vendor's image.
    pub vendor: Memory,
    /// Context of the image.
    pub context: Arc<Context>,
    /// Buffer that holds the image's pixels, if it was made of one.
    pub buffer: Option<Arc<Buffer>>,
    extent: [usize; 3],
    element: usize,
    /// Charges of the tenant's account for the image and for its memory.
    _charges: Option<[Charge; 2]>,
}

/// A sampler.
#[derive(Debug)]
pub struct Sampler {
    /// The vendor's sampler.
    pub vendor: vendor::Sampler,
    /// Context of the sampler.
    pub context: Arc<Context>,
}

impl Image {
    /// Makes an image with the pixels `initial`. Without them the image has the contents of `buffer`, or
    /// zeros.
    ///
    /// # Errors
    /// The vendor's error, or the standard's if the format or the shape is invalid or the number of bytes is
    /// wrong.
    pub fn new(
        context: Arc<Context>,
        flags: u64,
        create: &v1::CreateImage,
        buffer: Option<Arc<Buffer>>,
        initial: Option<&[u8]>,
    ) -> ClResult<Self> {
        let format = create.format.ok_or(ClError::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let shape = create.shape.ok_or(ClError::INVALID_IMAGE_DESCRIPTOR)?;
        let element =
            element_size(format.order, format.r#type).ok_or(ClError::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let size = |number| usize::try_from(number).map_err(|_| ClError::INVALID_IMAGE_SIZE);
        let [width, height, depth, array_size, row_pitch] = [
            size(shape.width)?,
            size(shape.height)?,
            size(shape.depth)?,
            size(shape.array_size)?,
            size(shape.row_pitch)?,
        ];
        let extent = extent(shape.r#type, width, height, depth, array_size)
            .ok_or(ClError::INVALID_IMAGE_DESCRIPTOR)?;
        let bytes = tight_bytes(element, extent).ok_or(ClError::INVALID_IMAGE_SIZE)?;
        let zeros;
        let pixels = match (&buffer, initial) {
            (Some(_), None) => None,
            (None, Some(pixels)) if pixels.len() == bytes => Some(pixels),
            (None, None) => {
                // Memory of a new image may have another tenant's data, so it gets zeros. Pages of zeros that
                // are only read take no memory.
                zeros = zeroes(bytes)?;
                Some(zeros.as_slice())
            }
            _ => return Err(ClError::INVALID_VALUE),
        };
        let shape = Shape {
            kind: shape.r#type,
            width,
            height,
            depth,
            array_size,
            buffer: buffer.as_ref().map(|buffer| (&buffer.vendor, row_pitch)),
        };
        let format = Format { order: format.order, channel_type: format.r#type };
        let vendor = Memory::image(&context.vendor, flags, format, &shape, pixels)?;
        if vendor.element_size()? != element {
            return Err(ClError::IMAGE_FORMAT_NOT_SUPPORTED);
        }
        Ok(Self { vendor, context, buffer, extent, element, _charges: None })
    }

    /// Number of bytes of the image's pixels.
    ///
    /// # Errors
    /// Like [`Self::new`].
    pub fn bytes(create: &v1::CreateImage) -> ClResult<u64> {
        let format = create.format.ok_or(ClError::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let shape = create.shape.ok_or(ClError::INVALID_IMAGE_DESCRIPTOR)?;
        let element =
            element_size(format.order, format.r#type).ok_or(ClError::INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        let size = |number| usize::try_from(number).map_err(|_| ClError::INVALID_IMAGE_SIZE);
        let (width, height) = (size(shape.width)?, size(shape.height)?);
        let (depth, array_size) = (size(shape.depth)?, size(shape.array_size)?);
        let extent = extent(shape.r#type, width, height, depth, array_size)
            .ok_or(ClError::INVALID_IMAGE_DESCRIPTOR)?;
        tight_bytes(element, extent).map(|bytes| bytes as u64).ok_or(ClError::INVALID_IMAGE_SIZE)
    }

    /// Adds the charges for the image, which are kept as long as the image.
    #[must_use]
    pub fn charged(self, charges: [Charge; 2]) -> Self {
        Self { _charges: Some(charges), ..self }
    }

    /// Checks a region of the image. Returns the region, and its number of bytes without gaps.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` (-30) if the image does not have the region.
    pub fn region(&self, region: Option<&v1::ImageRegion>) -> ClResult<(Region, usize)> {
        let invalid = ClError::INVALID_VALUE;
        let region = region.ok_or(invalid)?;
        let region = Region { origin: triple(&region.origin)?, size: triple(&region.size)? };
        if !is_inside(self.extent, region.origin, region.size) {
            return Err(invalid);
        }
        Ok((region, tight_bytes(self.element, region.size).ok_or(invalid)?))
    }

    /// Like [`Buffer::own_contents`], for the buffer that holds the pixels.
    ///
    /// # Errors
    /// Like [`Buffer::own_contents`].
    pub fn own_contents(&self) -> ClResult<Option<Arc<Event>>> {
        self.buffer.as_ref().map_or(Ok(None), |buffer| buffer.own_contents())
    }
}

impl Sampler {
    /// Makes a sampler of the context.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: Arc<Context>, create: &v1::CreateSampler) -> ClResult<Self> {
        let vendor =
            vendor::Sampler::new(&context.vendor, create.normalized, create.addressing, create.filter)?;
        Ok(Self { vendor, context })
    }
}

/// Three numbers of a message.
///
/// # Errors
/// `CL_INVALID_VALUE` (-30) if there are not exactly three, or one is too large.
pub fn triple(numbers: &[u64]) -> ClResult<[usize; 3]> {
    let invalid = ClError::INVALID_VALUE;
    let [a, b, c]: [u64; 3] = numbers.try_into().map_err(|_| invalid)?;
    let convert = |number| usize::try_from(number).map_err(|_| invalid);
    Ok([convert(a)?, convert(b)?, convert(c)?])
}

fn zeroes(bytes: usize) -> ClResult<Vec<u8>> {
    // A plain `vec![0; bytes]` would end the process if memory is short, so the reservation is tried first.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(bytes).map_err(|_| ClError::OUT_OF_HOST_MEMORY)?;
    drop(probe);
    Ok(vec![0; bytes])
}

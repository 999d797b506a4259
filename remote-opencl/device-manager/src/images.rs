//! Images and samplers of a session.
//!
//! What a client says of an image is checked here with the arithmetic that both sides share, and the vendor's idea of a
//! pixel's size has to be ours: the vendor copies from and to host memory by it.

use crate::objects::{Buffer, Context};
use crate::quotas::Charge;
use crate::vendor::{self, ClError, ClResult, Event, Format, Memory, Region, Shape};
use fpga_protocol::images::{element_size, extent, is_inside, tight_bytes};
use fpga_protocol::v1;
use opencl_sys::{
    CL_INVALID_IMAGE_DESCRIPTOR, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, CL_INVALID_IMAGE_SIZE, CL_INVALID_VALUE,
    CL_OUT_OF_HOST_MEMORY,
};
use std::sync::Arc;

/// An image.
#[derive(Debug)]
pub struct Image {
    /// The vendor's.
    pub vendor: Memory,
    /// Its context.
    pub context: Arc<Context>,
    /// The buffer whose memory it is.
    pub buffer: Option<Arc<Buffer>>,
    extent: [usize; 3],
    element: usize,
    /// On its tenant's account: the image and its memory.
    _charges: Option<[Charge; 2]>,
}

/// A sampler.
#[derive(Debug)]
pub struct Sampler {
    /// The vendor's.
    pub vendor: vendor::Sampler,
    /// Its context.
    pub context: Arc<Context>,
}

impl Image {
    /// An image of the context with these pixels; without them, zeroes, or what `buffer` holds.
    ///
    /// # Errors
    /// The vendor's, and the standard's where the format or the shape is none or the pixels are not as many.
    pub fn new(
        context: Arc<Context>,
        flags: u64,
        create: &v1::CreateImage,
        buffer: Option<Arc<Buffer>>,
        initial: Option<&[u8]>,
    ) -> ClResult<Self> {
        let format = create.format.ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let shape = create.shape.ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        let element =
            element_size(format.order, format.r#type).ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let size = |number| usize::try_from(number).map_err(|_| ClError(CL_INVALID_IMAGE_SIZE));
        let [width, height, depth, array_size, row_pitch] = [
            size(shape.width)?,
            size(shape.height)?,
            size(shape.depth)?,
            size(shape.array_size)?,
            size(shape.row_pitch)?,
        ];
        let extent = extent(shape.r#type, width, height, depth, array_size)
            .ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        let bytes = tight_bytes(element, extent).ok_or(ClError(CL_INVALID_IMAGE_SIZE))?;
        let zeros;
        let pixels = match (&buffer, initial) {
            (Some(_), None) => None,
            (None, Some(pixels)) if pixels.len() == bytes => Some(pixels),
            (None, None) => {
                // A new image may hold what another tenant left. Pages of zeros that are only read take no memory.
                zeros = zeroes(bytes)?;
                Some(zeros.as_slice())
            }
            _ => return Err(ClError(CL_INVALID_VALUE)),
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
            return Err(ClError(opencl_sys::CL_IMAGE_FORMAT_NOT_SUPPORTED));
        }
        Ok(Self { vendor, context, buffer, extent, element, _charges: None })
    }

    /// How much memory its pixels take.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn bytes(create: &v1::CreateImage) -> ClResult<u64> {
        let format = create.format.ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let shape = create.shape.ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        let element =
            element_size(format.order, format.r#type).ok_or(ClError(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
        let size = |number| usize::try_from(number).map_err(|_| ClError(CL_INVALID_IMAGE_SIZE));
        let (width, height) = (size(shape.width)?, size(shape.height)?);
        let (depth, array_size) = (size(shape.depth)?, size(shape.array_size)?);
        let extent = extent(shape.r#type, width, height, depth, array_size)
            .ok_or(ClError(CL_INVALID_IMAGE_DESCRIPTOR))?;
        tight_bytes(element, extent).map(|bytes| bytes as u64).ok_or(ClError(CL_INVALID_IMAGE_SIZE))
    }

    /// With the charges for it, which it keeps.
    #[must_use]
    pub fn charged(self, charges: [Charge; 2]) -> Self {
        Self { _charges: Some(charges), ..self }
    }

    /// A region that the image has, and its bytes without gaps.
    ///
    /// # Errors
    /// -30 where it has none such.
    pub fn region(&self, region: Option<&v1::ImageRegion>) -> ClResult<(Region, usize)> {
        let invalid = ClError(CL_INVALID_VALUE);
        let region = region.ok_or(invalid)?;
        let region = Region { origin: triple(&region.origin)?, size: triple(&region.size)? };
        if !is_inside(self.extent, region.origin, region.size) {
            return Err(invalid);
        }
        Ok((region, tight_bytes(self.element, region.size).ok_or(invalid)?))
    }

    /// As [`Buffer::own_contents`].
    ///
    /// # Errors
    /// Its.
    pub fn own_contents(&self) -> ClResult<Option<Arc<Event>>> {
        self.buffer.as_ref().map_or(Ok(None), |buffer| buffer.own_contents())
    }
}

impl Sampler {
    /// A sampler of the context.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(context: Arc<Context>, create: &v1::CreateSampler) -> ClResult<Self> {
        let vendor =
            vendor::Sampler::new(&context.vendor, create.normalized, create.addressing, create.filter)?;
        Ok(Self { vendor, context })
    }
}

/// Three numbers of a message.
///
/// # Errors
/// -30 where there are more or fewer, or one is too large.
pub fn triple(numbers: &[u64]) -> ClResult<[usize; 3]> {
    let invalid = ClError(CL_INVALID_VALUE);
    let [a, b, c]: [u64; 3] = numbers.try_into().map_err(|_| invalid)?;
    let convert = |number| usize::try_from(number).map_err(|_| invalid);
    Ok([convert(a)?, convert(b)?, convert(c)?])
}

fn zeroes(bytes: usize) -> ClResult<Vec<u8>> {
    // Not `vec![0; bytes]` unchecked: that ends the process where there is no memory.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(bytes).map_err(|_| ClError(CL_OUT_OF_HOST_MEMORY))?;
    drop(probe);
    Ok(vec![0; bytes])
}

//! Images and samplers. Commands on images are in `enqueue/images.rs`.

use crate::api::{call, check};
use crate::handles::{Context, Handle, Memory, handle};
use crate::info::number;
use crate::object::{self, Kind, VendorObject};
use crate::rects::Region;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{
    CL_IMAGE_ELEMENT_SIZE, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY,
    CL_MEM_OBJECT_IMAGE3D, cl_image_desc, cl_image_format, cl_mem, cl_sampler,
};
use std::ptr;
use std::sync::Arc;

handle! {
    /// A sampler.
    Sampler(cl_sampler) by clReleaseSampler
}

/// Maximum number of formats; no runtime has as many.
const MAX_FORMATS: u32 = 4096;

/// The format of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// `cl_channel_order`.
    pub order: u32,
    /// `cl_channel_type`.
    pub channel_type: u32,
}

/// The kind and the size of an image.
#[derive(Debug)]
pub struct Shape<'a> {
    /// `cl_mem_object_type`.
    pub kind: u32,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Depth in pixels.
    pub depth: usize,
    /// Number of images in an array.
    pub array_size: usize,
    /// The buffer that contains the image, and the distance of its rows there in bytes, 0 without gaps.
    pub buffer: Option<(&'a Memory, usize)>,
}

impl Memory {
    /// Makes an image with `pixels`, which the caller gives for the whole image. Without them the content is
    /// undefined.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn image(
        context: &Context,
        flags: u64,
        format: Format,
        shape: &Shape<'_>,
        pixels: Option<&[u8]>,
    ) -> ClResult<Self> {
        let desired = Desired {
            flags,
            format,
            kind: shape.kind,
            extent: [shape.width, shape.height, shape.depth],
            array_size: shape.array_size,
            buffer: shape.buffer.map(|(memory, pitch)| (memory.cell().clone(), pitch)),
        };
        let of = context.cell().clone();
        let image = Self::own(desired.create(&of, pixels)?, opencl_sys::CL_SUCCESS)?;
        if object::is_on() {
            let kind = match (&desired.buffer, pixels) {
                (None, Some(pixels)) => {
                    Kind::Image { context: of.clone(), region: desired.all(), size: pixels.len() }
                }
                // Without pixels the content is that of the image's buffer.
                _ => Kind::Other,
            };
            object::remember(image.cell(), kind, move |pixels| desired.create(&of, pixels));
        }
        Ok(image)
    }

    /// Bytes of a pixel of this image.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn element_size(&self) -> ClResult<usize> {
        let bytes = crate::info::query(|size, value, needed| {
            // SAFETY: the image is live, and `query` passes valid pointers.
            Ok(unsafe { call!(clGetImageInfo(self.raw(), CL_IMAGE_ELEMENT_SIZE, size, value, needed)) })
        })?;
        usize::try_from(number(&bytes)).map_err(|_| ClError::OUT_OF_RESOURCES)
    }
}

/// The parameters of an image.
struct Desired {
    flags: u64,
    format: Format,
    kind: u32,
    extent: [usize; 3],
    array_size: usize,
    buffer: Option<(Arc<VendorObject>, usize)>,
}

impl Desired {
    /// The region of the whole image. A dimension that the image lacks has the size 1, and the layers of an array
    /// are the dimension after its last one.
    fn all(&self) -> Region {
        let [width, height, depth] = self.extent.map(|size| size.max(1));
        let layers = self.array_size.max(1);
        let size = match self.kind {
            CL_MEM_OBJECT_IMAGE3D => [width, height, depth],
            CL_MEM_OBJECT_IMAGE2D => [width, height, 1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => [width, height, layers],
            CL_MEM_OBJECT_IMAGE1D_ARRAY => [width, layers, 1],
            _ => [width, 1, 1],
        };
        Region { origin: [0; 3], size }
    }

    fn create(&self, context: &VendorObject, pixels: Option<&[u8]>) -> ClResult<cl_mem> {
        let format = cl_image_format {
            image_channel_order: self.format.order,
            image_channel_data_type: self.format.channel_type,
        };
        let (buffer, pitch) = match &self.buffer {
            Some((buffer, pitch)) => (buffer.alive()?, *pitch),
            None => (ptr::null_mut(), 0),
        };
        let description = cl_image_desc {
            image_type: self.kind,
            image_width: self.extent[0],
            image_height: self.extent[1],
            image_depth: self.extent[2],
            image_array_size: self.array_size,
            image_row_pitch: pitch,
            image_slice_pitch: 0,
            num_mip_levels: 0,
            num_samples: 0,
            buffer,
        };
        let flags = if pixels.is_some() { self.flags | opencl_sys::CL_MEM_COPY_HOST_PTR } else { self.flags };
        let host = pixels.map_or(ptr::null_mut(), |bytes| bytes.as_ptr().cast_mut().cast());
        let mut status = 0;
        // SAFETY: context and buffer are live, and format and description are complete. The vendor reads the pixels
        // before the call returns, and the caller gives them for the whole image.
        let image = unsafe {
            call!(clCreateImage(
                context.alive()?,
                flags,
                &raw const format,
                &raw const description,
                host,
                &raw mut status
            ))
        };
        check(status).map(|()| image)
    }
}

fn create_sampler(
    context: &VendorObject,
    normalized: bool,
    addressing: u32,
    filter: u32,
) -> ClResult<cl_sampler> {
    let mut status = 0;
    // SAFETY: the context is live, and the other arguments are numbers.
    let sampler = unsafe {
        call!(clCreateSampler(context.alive()?, normalized.into(), addressing, filter, &raw mut status))
    };
    check(status).map(|()| sampler)
}

impl Sampler {
    /// Makes a sampler.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: &Context, normalized: bool, addressing: u32, filter: u32) -> ClResult<Self> {
        let of = context.cell().clone();
        let raw = create_sampler(&of, normalized, addressing, filter)?;
        let sampler = Self::own(raw, opencl_sys::CL_SUCCESS)?;
        object::remember(sampler.cell(), Kind::Other, move |_| {
            create_sampler(&of, normalized, addressing, filter)
        });
        Ok(sampler)
    }
}

/// The formats of images of this kind (`cl_mem_object_type`).
///
/// # Errors
/// The vendor's error.
pub fn image_formats(context: &Context, flags: u64, kind: u32) -> ClResult<Vec<Format>> {
    let mut count = 0;
    // SAFETY: the context is live, and no array is passed.
    check(unsafe {
        call!(clGetSupportedImageFormats(context.raw(), flags, kind, 0, ptr::null_mut(), &raw mut count))
    })?;
    let none = cl_image_format { image_channel_order: 0, image_channel_data_type: 0 };
    let mut formats = vec![none; count.min(MAX_FORMATS) as usize];
    if !formats.is_empty() {
        let room = u32::try_from(formats.len()).unwrap_or(0);
        // SAFETY: as above, and the array has room for `room` formats.
        check(unsafe {
            call!(clGetSupportedImageFormats(
                context.raw(),
                flags,
                kind,
                room,
                formats.as_mut_ptr(),
                ptr::null_mut()
            ))
        })?;
    }
    let format = |format: cl_image_format| Format {
        order: format.image_channel_order,
        channel_type: format.image_channel_data_type,
    };
    Ok(formats.into_iter().map(format).collect())
}

//! Images and samplers. Pixels come and go without gaps: pitches are the vendor's business here.

use super::api::call;
use super::enqueue::WaitList;
use super::handles::handle;
use super::info::number;
use super::life::{self, Cell, Kind};
use super::{ClError, ClResult, Context, Enqueued, Event, Memory, Queue, check};
use crate::segments::Slice;
use bytes::Bytes;
use opencl_sys::{
    CL_FALSE, CL_IMAGE_ELEMENT_SIZE, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D,
    CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D, cl_image_desc, cl_image_format, cl_mem, cl_sampler,
};
use std::ptr;
use std::sync::Arc;

handle! {
    /// A sampler.
    Sampler(cl_sampler) by clReleaseSampler
}

/// More formats than any runtime has.
const MAX_FORMATS: u32 = 4096;

/// What a pixel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// `cl_channel_order`.
    pub order: u32,
    /// `cl_channel_type`.
    pub channel_type: u32,
}

/// What an image is.
#[derive(Debug)]
pub struct Shape<'a> {
    /// `cl_mem_object_type`.
    pub kind: u32,
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub depth: usize,
    /// Images of an array.
    pub array_size: usize,
    /// The buffer whose memory it is, and the distance of its rows there, 0 without gaps.
    pub buffer: Option<(&'a Memory, usize)>,
}

/// A part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub origin: [usize; 3],
    /// How far it goes.
    pub size: [usize; 3],
}

impl Memory {
    /// An image; without `pixels`, as many as it has, what it holds is anything.
    ///
    /// # Errors
    /// The vendor's.
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
        if life::is_on() {
            let kind = match (&desired.buffer, pixels) {
                (None, Some(pixels)) => {
                    Kind::Image { context: of.clone(), region: desired.all(), size: pixels.len() }
                }
                // What it holds is its buffer's.
                _ => Kind::Other,
            };
            life::remember(image.cell(), kind, move |pixels| desired.create(&of, pixels));
        }
        Ok(image)
    }

    /// Bytes of a pixel of this image.
    ///
    /// # Errors
    /// The vendor's.
    pub fn element_size(&self) -> ClResult<usize> {
        let bytes = super::info::query(|size, value, needed| {
            // SAFETY: the image is live; `query` passes valid pointers.
            Ok(unsafe { call!(clGetImageInfo(self.raw(), CL_IMAGE_ELEMENT_SIZE, size, value, needed)) })
        })?;
        usize::try_from(number(&bytes)).map_err(|_| ClError(opencl_sys::CL_OUT_OF_RESOURCES))
    }
}

/// An image as it is wanted.
struct Desired {
    flags: u64,
    format: Format,
    kind: u32,
    extent: [usize; 3],
    array_size: usize,
    buffer: Option<(Arc<Cell>, usize)>,
}

impl Desired {
    /// All of it, as regions say it: dimensions that it doesn't have are 1, layers are the dimension after its own.
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

    fn create(&self, context: &Cell, pixels: Option<&[u8]>) -> ClResult<cl_mem> {
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
        // SAFETY: context and buffer are live; format and description are complete. The vendor reads the pixels, of
        // which the caller gives all, before the call returns.
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

fn create_sampler(context: &Cell, normalized: bool, addressing: u32, filter: u32) -> ClResult<cl_sampler> {
    let mut status = 0;
    // SAFETY: the context is live; the rest are numbers.
    let sampler = unsafe {
        call!(clCreateSampler(context.alive()?, normalized.into(), addressing, filter, &raw mut status))
    };
    check(status).map(|()| sampler)
}

impl Sampler {
    /// A sampler.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(context: &Context, normalized: bool, addressing: u32, filter: u32) -> ClResult<Self> {
        let of = context.cell().clone();
        let raw = create_sampler(&of, normalized, addressing, filter)?;
        let sampler = Self::own(raw, opencl_sys::CL_SUCCESS)?;
        life::remember(sampler.cell(), Kind::Other, move |_| {
            create_sampler(&of, normalized, addressing, filter)
        });
        Ok(sampler)
    }
}

/// The formats of images of this kind (`cl_mem_object_type`).
///
/// # Errors
/// The vendor's.
pub fn image_formats(context: &Context, flags: u64, kind: u32) -> ClResult<Vec<Format>> {
    let mut count = 0;
    // SAFETY: the context is live; no array is passed.
    check(unsafe {
        call!(clGetSupportedImageFormats(context.raw(), flags, kind, 0, ptr::null_mut(), &raw mut count))
    })?;
    let none = cl_image_format { image_channel_order: 0, image_channel_data_type: 0 };
    let mut formats = vec![none; count.min(MAX_FORMATS) as usize];
    if !formats.is_empty() {
        let room = u32::try_from(formats.len()).unwrap_or(0);
        // SAFETY: as above; the array has room for as many.
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

impl Queue {
    /// Writes a region; there must be as many pixels as it has, which the caller has checked.
    ///
    /// # Errors
    /// The vendor's.
    pub fn write_image(
        &self,
        image: &Memory,
        region: Region,
        pixels: Bytes,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let address = pixels.as_ptr();
        // SAFETY: `pixels` has the region's bytes and is kept until the event has ended.
        let event = unsafe { self.write_image_from(image, region, address, wait)? };
        Ok(Enqueued::reading(event, pixels))
    }

    /// As [`Self::write_image`], from shared memory.
    ///
    /// # Errors
    /// The vendor's.
    pub fn write_image_shared(
        &self,
        image: &Memory,
        region: Region,
        slice: Slice,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let address = slice.address().cast_const().cast();
        // SAFETY: the slice has the region's bytes and is kept until the event has ended.
        let event = unsafe { self.write_image_from(image, region, address, wait)? };
        Ok(Enqueued::shared(event, slice))
    }

    /// # Safety
    /// `address` is valid for reads of the region's bytes until the event has ended.
    unsafe fn write_image_from(
        &self,
        image: &Memory,
        region: Region,
        address: *const u8,
        wait: &[&Event],
    ) -> ClResult<Event> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the rest is the caller's promise.
        let status = unsafe {
            call!(clEnqueueWriteImage(
                self.raw(),
                image.raw(),
                CL_FALSE,
                region.origin.as_ptr(),
                region.size.as_ptr(),
                0,
                0,
                address.cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Event::of_command(event, status)
    }

    /// Reads a region of so many bytes, which the caller has reckoned; [`Enqueued::take_piece`] 0 has them all.
    ///
    /// # Errors
    /// The vendor's, and -6 where there is no memory.
    pub fn read_image(
        &self,
        image: &Memory,
        region: Region,
        size: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| ClError(opencl_sys::CL_OUT_OF_HOST_MEMORY))?;
        let address = bytes.as_mut_ptr();
        // SAFETY: `bytes` has room for the region and is kept, unmoved, until the event has ended.
        let event = unsafe { self.read_image_to(image, region, address, wait)? };
        Ok(Enqueued::writing(event, bytes, size))
    }

    /// As [`Self::read_image`], into shared memory of the region's size.
    ///
    /// # Errors
    /// The vendor's.
    pub fn read_image_shared(
        &self,
        image: &Memory,
        region: Region,
        slice: Slice,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let address = slice.address().cast();
        // SAFETY: the slice has the region's bytes and is kept until the event has ended.
        let event = unsafe { self.read_image_to(image, region, address, wait)? };
        Ok(Enqueued::shared(event, slice))
    }

    /// # Safety
    /// `address` is valid for writes of the region's bytes until the event has ended.
    unsafe fn read_image_to(
        &self,
        image: &Memory,
        region: Region,
        address: *mut u8,
        wait: &[&Event],
    ) -> ClResult<Event> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the rest is the caller's promise.
        let status = unsafe {
            call!(clEnqueueReadImage(
                self.raw(),
                image.raw(),
                CL_FALSE,
                region.origin.as_ptr(),
                region.size.as_ptr(),
                0,
                0,
                address.cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Event::of_command(event, status)
    }

    /// Copies a region to where `target_origin` says.
    ///
    /// # Errors
    /// The vendor's.
    pub fn copy_image(
        &self,
        source: &Memory,
        target: &Memory,
        region: Region,
        target_origin: [usize; 3],
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the vendor checks the regions.
        let status = unsafe {
            call!(clEnqueueCopyImage(
                self.raw(),
                source.raw(),
                target.raw(),
                region.origin.as_ptr(),
                target_origin.as_ptr(),
                region.size.as_ptr(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Fills a region with a colour.
    ///
    /// # Errors
    /// The vendor's.
    pub fn fill_image(
        &self,
        image: &Memory,
        color: &[u8; 16],
        region: Region,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        /// As four floats or integers lie.
        #[repr(align(16))]
        struct Color([u8; 16]);
        let color = Color(*color);
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the colour has the longest form there is and is
        // copied before the call returns.
        let status = unsafe {
            call!(clEnqueueFillImage(
                self.raw(),
                image.raw(),
                color.0.as_ptr().cast(),
                region.origin.as_ptr(),
                region.size.as_ptr(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Copies a region to a buffer from `offset` on.
    ///
    /// # Errors
    /// The vendor's.
    pub fn copy_image_to_buffer(
        &self,
        image: &Memory,
        region: Region,
        (buffer, offset): (&Memory, usize),
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the vendor checks the ranges.
        let status = unsafe {
            call!(clEnqueueCopyImageToBuffer(
                self.raw(),
                image.raw(),
                buffer.raw(),
                region.origin.as_ptr(),
                region.size.as_ptr(),
                offset,
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Copies from a buffer, from `offset` on, to a region.
    ///
    /// # Errors
    /// The vendor's.
    pub fn copy_buffer_to_image(
        &self,
        (buffer, offset): (&Memory, usize),
        image: &Memory,
        region: Region,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries; the vendor checks the ranges.
        let status = unsafe {
            call!(clEnqueueCopyBufferToImage(
                self.raw(),
                buffer.raw(),
                image.raw(),
                offset,
                region.origin.as_ptr(),
                region.size.as_ptr(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }
}

//! Commands on images. Pixels in host memory have no gaps, so the pitches are zero and the vendor computes them.

use super::{Enqueued, WaitList};
use crate::api::call;
use crate::handles::{Event, Handle as _, Memory, Queue};
use crate::rects::Region;
use crate::shared_bytes::SharedBytes;
use bytes::Bytes;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::CL_FALSE;
use std::ptr;

impl Queue {
    /// Enqueues a write of a region. The caller has checked that `pixels` has the region's bytes.
    ///
    /// # Errors
    /// The vendor's error.
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

    /// Enqueues a write of a region from shared memory. The caller has checked that `slice` has the region's bytes.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn write_image_shared(
        &self,
        image: &Memory,
        region: Region,
        slice: SharedBytes,
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
        // SAFETY: all handles are live, and the arrays have three entries. The caller promises the rest.
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

    /// Enqueues a read of a region with `size` bytes, as the caller has computed. [`Enqueued::take_piece`] with
    /// index 0 returns them.
    ///
    /// # Errors
    /// The vendor's error; `CL_OUT_OF_HOST_MEMORY` (-6) if there is no memory.
    pub fn read_image(
        &self,
        image: &Memory,
        region: Region,
        size: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| ClError::OUT_OF_HOST_MEMORY)?;
        let address = bytes.as_mut_ptr();
        // SAFETY: `bytes` has room for the region and is kept, unmoved, until the event has ended.
        let event = unsafe { self.read_image_to(image, region, address, wait)? };
        Ok(Enqueued::writing(event, bytes, size))
    }

    /// Enqueues a read of a region into shared memory. The caller has checked that `slice` has room for the region.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn read_image_shared(
        &self,
        image: &Memory,
        region: Region,
        slice: SharedBytes,
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
        // SAFETY: all handles are live, and the arrays have three entries. The caller promises the rest.
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

    /// Enqueues a copy of a region to `target_origin` of another image.
    ///
    /// # Errors
    /// The vendor's error.
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
        // SAFETY: all handles are live, the arrays have three entries, and the vendor checks the regions.
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

    /// Enqueues a fill of a region with a colour.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn fill_image(
        &self,
        image: &Memory,
        color: &[u8; 16],
        region: Region,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        /// A colour with the alignment of four floats or integers.
        #[repr(align(16))]
        struct Color([u8; 16]);
        let color = Color(*color);
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the arrays have three entries. The colour has the longest form of all,
        // and is copied before the call returns.
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

    /// Enqueues a copy of a region to a buffer, from `offset` on.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn copy_image_to_buffer(
        &self,
        image: &Memory,
        region: Region,
        (buffer, offset): (&Memory, usize),
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries, and the vendor checks the ranges.
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

    /// Enqueues a copy from a buffer, from `offset` on, to a region.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn copy_buffer_to_image(
        &self,
        (buffer, offset): (&Memory, usize),
        image: &Memory,
        region: Region,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, the arrays have three entries, and the vendor checks the ranges.
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

//! Commands that move pixels of images: read, write, copy, fill, map.

use crate::api::transfer::check_map_flags;
use crate::api::transfer_rect::triple;
use crate::api::wait_list;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::memory;
use crate::objects::{Memory, Queue};
use fpga_client::{ClError, HostSource, HostTarget, ImageRegion};
use std::ffi::c_void;

entry_points! {
    fn clEnqueueReadImage(
        queue: cl::cl_command_queue,
        image: cl::cl_mem,
        blocking: cl::cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        target: *mut c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(image)?;
        let image = memory.image()?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        let bytes = image.host_bytes(&region, row_pitch, slice_pitch)?;
        if target.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's memory has the bytes of the region until the command has completed.
        let target = unsafe { HostTarget::borrowed(target.cast(), bytes) }.awaited(wait_list::awaited(blocking));
        let done = queue.client.read_image(image, region, (row_pitch, slice_pitch), target, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueWriteImage(
        queue: cl::cl_command_queue,
        image: cl::cl_mem,
        blocking: cl::cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        source: *const c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(image)?;
        let image = memory.image()?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        let bytes = image.host_bytes(&region, row_pitch, slice_pitch)?;
        if source.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's memory has the bytes of the region, which don't change until the command has
        // completed.
        let data = unsafe { HostSource::borrowed(source.cast(), bytes) }.awaited(wait_list::awaited(blocking));
        let done = queue.client.write_image(image, region, (row_pitch, slice_pitch), data, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueCopyImage(
        queue: cl::cl_command_queue,
        source: cl::cl_mem,
        target: cl::cl_mem,
        source_origin: *const usize,
        target_origin: *const usize,
        region: *const usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let (source, target) = (lookup::<Memory>(source)?, lookup::<Memory>(target)?);
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, target_origin, waits) = unsafe {
            (read_region(source_origin, region)?, triple(target_origin)?, wait_list::read(num_waits, waits)?)
        };
        let done =
            queue.client.copy_image(source.image()?, target.image()?, region, target_origin, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueFillImage(
        queue: cl::cl_command_queue,
        image: cl::cl_mem,
        color: *const c_void,
        origin: *const usize,
        region: *const usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(image)?;
        let image = memory.image()?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        // The colour is a single float for a depth image, else four numbers.
        let length = if image.format().order == cl::CL_DEPTH { 4 } else { 16 };
        let mut four = [0; 16];
        // SAFETY: the caller's colour has `length` bytes.
        four[..length].copy_from_slice(unsafe { memory::array(color.cast::<u8>(), length)? });
        let done = queue.client.fill_image(image, four, region, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueCopyImageToBuffer(
        queue: cl::cl_command_queue,
        source: cl::cl_mem,
        target: cl::cl_mem,
        origin: *const usize,
        region: *const usize,
        offset: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let (source, target) = (lookup::<Memory>(source)?, lookup::<Memory>(target)?);
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        let done =
            queue.client.copy_image_to_buffer(source.image()?, region, target.buffer()?, offset, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueCopyBufferToImage(
        queue: cl::cl_command_queue,
        source: cl::cl_mem,
        target: cl::cl_mem,
        offset: usize,
        origin: *const usize,
        region: *const usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let (source, target) = (lookup::<Memory>(source)?, lookup::<Memory>(target)?);
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        let done =
            queue.client.copy_buffer_to_image(source.buffer()?, offset, target.image()?, region, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueMapImage(
        queue: cl::cl_command_queue,
        image: cl::cl_mem,
        blocking: cl::cl_bool,
        flags: cl::cl_map_flags,
        origin: *const usize,
        region: *const usize,
        row_pitch: *mut usize,
        slice_pitch: *mut usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> pointer {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(image)?;
        let image = memory.image()?;
        check_map_flags(flags)?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (region, waits) = unsafe { (read_region(origin, region)?, wait_list::read(num_waits, waits)?) };
        // CL_INVALID_VALUE if image_row_pitch is NULL, or image_slice_pitch is NULL for an image with slices.
        let layered = [
            cl::CL_MEM_OBJECT_IMAGE3D,
            cl::CL_MEM_OBJECT_IMAGE1D_ARRAY,
            cl::CL_MEM_OBJECT_IMAGE2D_ARRAY,
        ];
        if row_pitch.is_null() || (slice_pitch.is_null() && layered.contains(&image.shape().kind)) {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let (mapped, (row, slice)) = queue.client.map_image(image, flags, region, &waits)?;
        wait_list::wait_if(blocking, &mapped.event)?;
        // SAFETY: the caller's pointers are NULL or writable.
        unsafe {
            memory::write(row_pitch, row);
            memory::write(slice_pitch, slice);
            wait_list::give_event(&queue, mapped.event, event);
        }
        Ok(mapped.address as *mut c_void)
    }
}

/// # Safety
/// Both arrays are NULL or have three entries.
unsafe fn read_region(origin: *const usize, region: *const usize) -> Result<ImageRegion, ClError> {
    // SAFETY: the arrays are NULL or have three entries by this function's contract.
    unsafe { Ok(ImageRegion { origin: triple(origin)?, size: triple(region)? }) }
}

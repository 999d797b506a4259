//! Commands on rectangles of buffers: read, write, copy.

use crate::api::wait_list;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::memory;
use crate::objects::{Memory, Queue};
use fpga_client::rect::Layout;
use fpga_client::{ClError, HostSource, HostTarget, Operation};
use std::ffi::c_void;

entry_points! {
    fn clEnqueueReadBufferRect(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        blocking: cl::cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        host: *mut c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(buffer)?;
        let buffer = memory.buffer()?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (buffer_origin, host_origin, region, waits) = unsafe {
            (triple(buffer_origin)?, triple(host_origin)?, triple(region)?, wait_list::read(num_waits, waits)?)
        };
        let here = Layout::new(buffer_origin, region, buffer_row_pitch, buffer_slice_pitch)?;
        let there = Layout::new(host_origin, region, host_row_pitch, host_slice_pitch)?;
        check_host(host)?;
        // SAFETY: the caller's memory has the whole rectangle until the command has completed.
        let target = unsafe {
            HostTarget::borrowed(host.cast::<u8>().add(there.start()), there.end(region)? - there.start())
        };
        let target = target.awaited(wait_list::awaited(blocking));
        let read = Operation::ReadRect { buffer, layout: here, host: there, region, target };
        let done = queue.client.enqueue(read, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event_of_type(&queue, done, cl::CL_COMMAND_READ_BUFFER_RECT, event) };
        Ok(())
    }

    fn clEnqueueWriteBufferRect(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        blocking: cl::cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        host: *const c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(buffer)?;
        let buffer = memory.buffer()?;
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (buffer_origin, host_origin, region, waits) = unsafe {
            (triple(buffer_origin)?, triple(host_origin)?, triple(region)?, wait_list::read(num_waits, waits)?)
        };
        let here = Layout::new(buffer_origin, region, buffer_row_pitch, buffer_slice_pitch)?;
        let there = Layout::new(host_origin, region, host_row_pitch, host_slice_pitch)?;
        check_host(host)?;
        // SAFETY: the caller's memory has the whole rectangle, which doesn't change until the command has completed.
        let data = unsafe {
            HostSource::borrowed(host.cast::<u8>().add(there.start()), there.end(region)? - there.start())
        };
        let data = data.awaited(wait_list::awaited(blocking));
        let write = Operation::WriteRect { buffer, layout: here, host: there, region, data };
        let done = queue.client.enqueue(write, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event_of_type(&queue, done, cl::CL_COMMAND_WRITE_BUFFER_RECT, event) };
        Ok(())
    }

    fn clEnqueueCopyBufferRect(
        queue: cl::cl_command_queue,
        source: cl::cl_mem,
        target: cl::cl_mem,
        source_origin: *const usize,
        target_origin: *const usize,
        region: *const usize,
        source_row_pitch: usize,
        source_slice_pitch: usize,
        target_row_pitch: usize,
        target_slice_pitch: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let (source, target) = (lookup::<Memory>(source)?, lookup::<Memory>(target)?);
        let (source, target) = (source.buffer()?, target.buffer()?);
        // SAFETY: the caller's arrays have three entries, the list of events `num_waits`.
        let (source_origin, target_origin, region, waits) = unsafe {
            (triple(source_origin)?, triple(target_origin)?, triple(region)?, wait_list::read(num_waits, waits)?)
        };
        let from = Layout::new(source_origin, region, source_row_pitch, source_slice_pitch)?;
        let to = Layout::new(target_origin, region, target_row_pitch, target_slice_pitch)?;
        let copy = Operation::CopyRect { source: (source, from), target: (target, to), region };
        let done = queue.client.enqueue(copy, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event_of_type(&queue, done, cl::CL_COMMAND_COPY_BUFFER_RECT, event) };
        Ok(())
    }
}

/// Reads an array of three entries. CL_INVALID_VALUE if it is NULL.
///
/// # Safety
/// `array` is NULL or has three entries.
pub unsafe fn triple(array: *const usize) -> Result<[usize; 3], ClError> {
    // SAFETY: the array is NULL or has three entries by this function's contract.
    let entries = unsafe { memory::array(array, 3)? };
    entries.try_into().map_err(|_| ClError(cl::CL_INVALID_VALUE))
}

/// CL_INVALID_VALUE if ptr is NULL.
fn check_host<T>(host: *const T) -> Result<(), ClError> {
    if host.is_null() { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

//! Rectangular reads, writes and copies, as ordinary commands for each stretch of bytes.

use crate::api::wait_list;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::memory;
use crate::objects::{Memory, Queue};
use crate::rect::{Layout, Stretch, check_copy_inside, stretches};
use fpga_client as client;
use fpga_client::{ClError, HostSource, HostTarget, Operation};
use std::ffi::c_void;
use std::sync::Arc;

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
        check_bounds(here, region, buffer)?;
        check_host(host)?;
        let done = enqueue_all(&queue, &waits, stretches(here, there, region), |stretch| {
            // SAFETY: the caller's memory has the whole rectangle until the command has completed.
            let target = unsafe { HostTarget::borrowed(host.cast::<u8>().add(stretch.to), stretch.length) };
            Operation::Read { buffer, offset: stretch.from, target }
        })?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: NULL or writable.
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
        check_bounds(here, region, buffer)?;
        check_host(host)?;
        let done = enqueue_all(&queue, &waits, stretches(there, here, region), |stretch| {
            // SAFETY: the caller's memory has the whole rectangle, unchanged until the command has completed.
            let data = unsafe { HostSource::borrowed(host.cast::<u8>().add(stretch.from), stretch.length) };
            Operation::Write { buffer, offset: stretch.to, data }
        })?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: NULL or writable.
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
        check_bounds(from, region, source)?;
        check_bounds(to, region, target)?;
        if Arc::ptr_eq(source, target) {
            check_copy_inside(from, to, region)?;
        }
        let done = enqueue_all(&queue, &waits, stretches(from, to, region), |stretch| Operation::Copy {
            source,
            target,
            source_offset: stretch.from,
            target_offset: stretch.to,
            size: stretch.length,
        })?;
        // SAFETY: NULL or writable.
        unsafe { wait_list::give_event_of_type(&queue, done, cl::CL_COMMAND_COPY_BUFFER_RECT, event) };
        Ok(())
    }
}

/// Enqueues a command per stretch; the event of the whole. Each waits for the list, so that all fail if it does.
fn enqueue_all<'a>(
    queue: &Handle<Queue>,
    waits: &[Arc<client::Event>],
    stretches: impl Iterator<Item = Stretch>,
    operation: impl Fn(Stretch) -> Operation<'a>,
) -> Result<Arc<client::Event>, ClError> {
    let in_order = queue.client.properties() & cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
    let mut events = Vec::new();
    for stretch in stretches {
        let event = queue.client.enqueue(operation(stretch), waits)?;
        if in_order {
            events.clear();
        }
        events.push(event);
    }
    match events.as_slice() {
        // The last one of an in-order queue, or the only one.
        [only] => Ok(Arc::clone(only)),
        several => queue.client.enqueue(Operation::Marker, several),
    }
}

/// CL_INVALID_VALUE if an array is NULL.
///
/// # Safety
/// `array` is NULL or has three entries.
pub unsafe fn triple(array: *const usize) -> Result<[usize; 3], ClError> {
    // SAFETY: three entries by this function's contract.
    let entries = unsafe { memory::array(array, 3)? };
    entries.try_into().map_err(|_| ClError(cl::CL_INVALID_VALUE))
}

/// CL_INVALID_VALUE if the rectangle is out of bounds.
fn check_bounds(layout: Layout, region: [usize; 3], buffer: &client::Buffer) -> Result<(), ClError> {
    if layout.end(region)? > buffer.size() { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

/// CL_INVALID_VALUE if ptr is NULL.
fn check_host<T>(host: *const T) -> Result<(), ClError> {
    if host.is_null() { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

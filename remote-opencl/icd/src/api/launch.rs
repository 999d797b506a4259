//! Commands that launch kernels, and commands that only order others.

use crate::api::wait_list;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::memory;
use crate::objects::{Event, Kernel, Queue};
use fpga_client as client;
use fpga_client::{ClError, Operation};
use std::ffi::c_void;
use std::sync::Arc;

entry_points! {
    fn clEnqueueNDRangeKernel(
        queue: cl::cl_command_queue,
        kernel: cl::cl_kernel,
        dimensions: cl::cl_uint,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let kernel = lookup::<Kernel>(kernel)?;
        // CL_INVALID_WORK_DIMENSION if work_dim is not a value between 1 and 3.
        if !(1..=3).contains(&dimensions) {
            return Err(ClError(cl::CL_INVALID_WORK_DIMENSION));
        }
        // CL_INVALID_GLOBAL_WORK_SIZE if global_work_size is NULL, before OpenCL 2.1. Since then NULL means zeroes.
        let zeroes = [0; 3];
        let global = match global.is_null() {
            true if queue.client.device().may_have_empty_ranges() => zeroes.as_ptr(),
            true => return Err(ClError(cl::CL_INVALID_GLOBAL_WORK_SIZE)),
            false => global,
        };
        // SAFETY: the lists of sizes (the caller's, or `zeroes`) are NULL or have `dimensions` entries; the caller's
        // list of events has `num_waits`.
        let (offset, global, local, waits) = unsafe {
            (
                sizes(offset, dimensions)?,
                sizes(global, dimensions)?,
                sizes(local, dimensions)?,
                wait_list::read(num_waits, waits)?,
            )
        };
        let done = launch(&queue, &kernel, offset, global, local, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueTask(
        queue: cl::cl_command_queue,
        kernel: cl::cl_kernel,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let kernel = lookup::<Kernel>(kernel)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let done = launch(&queue, &kernel, &[], &[1], &[1], &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event_of_type(&queue, done, cl::CL_COMMAND_TASK, event) };
        Ok(())
    }

    fn clEnqueueNativeKernel(
        queue: cl::cl_command_queue,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        _args: *mut c_void,
        _args_size: usize,
        _num_memory: cl::cl_uint,
        _memory: *const cl::cl_mem,
        _locations: *mut *const c_void,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        // CL_INVALID_VALUE if user_func is NULL.
        function.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        // CL_INVALID_OPERATION if the device cannot execute the native kernel. It never can, since it is in another
        // process.
        Err(ClError(cl::CL_INVALID_OPERATION))
    }

    fn clEnqueueMarkerWithWaitList(
        queue: cl::cl_command_queue,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let done = queue.client.enqueue(Operation::Marker, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueBarrierWithWaitList(
        queue: cl::cl_command_queue,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let done = queue.client.enqueue(Operation::Barrier, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueMarker(queue: cl::cl_command_queue, event: *mut cl::cl_event) -> status {
        let queue = lookup::<Queue>(queue)?;
        // CL_INVALID_VALUE if event is a NULL value.
        if event.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let done = queue.client.enqueue(Operation::Marker, &[])?;
        // SAFETY: the caller's pointer is not NULL, so it is writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueBarrier(queue: cl::cl_command_queue) -> status {
        lookup::<Queue>(queue)?.client.enqueue(Operation::Barrier, &[]).map(drop)
    }

    fn clEnqueueWaitForEvents(
        queue: cl::cl_command_queue,
        count: cl::cl_uint,
        list: *const cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        // CL_INVALID_VALUE if num_events is zero or event_list is NULL, CL_INVALID_EVENT for an invalid event.
        if count == 0 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `count` events.
        let handles = unsafe { memory::array(list, count as usize)? };
        let event = |handle: &cl::cl_event| lookup::<Event>(*handle).map(|event| Arc::clone(&event.client));
        let waits = handles.iter().map(event).collect::<Result<Vec<_>, _>>()?;
        // Later commands of the queue must not start before the events have completed, so this is a barrier that
        // waits for them.
        queue.client.enqueue(Operation::Barrier, &waits).map(drop)
    }
}

fn launch(
    queue: &Handle<Queue>,
    kernel: &Handle<Kernel>,
    offset: &[usize],
    global: &[usize],
    local: &[usize],
    waits: &[Arc<client::Event>],
) -> Result<Arc<client::Event>, ClError> {
    // CL_INVALID_CONTEXT if the context of the queue and of the kernel are not the same.
    if queue.context.as_ptr() != kernel.program.context.as_ptr() {
        return Err(ClError(cl::CL_INVALID_CONTEXT));
    }
    queue.client.enqueue(Operation::NdRange { kernel: &kernel.client, offset, global, local }, waits)
}

/// The entries of a list, one for each dimension; empty for NULL.
///
/// # Safety
/// `list` is NULL or has `dimensions` entries.
unsafe fn sizes<'a>(list: *const usize, dimensions: cl::cl_uint) -> Result<&'a [usize], ClError> {
    if list.is_null() {
        return Ok(&[]);
    }
    // SAFETY: `list` has `dimensions` entries by this function's contract.
    unsafe { memory::array(list, dimensions as usize) }
}

//! Callbacks from the vendor's threads at the end of a command or a buffer, and buffers that need one.

use crate::api::{call, check};
use crate::handles::{Context, Event, Handle as _, Memory};
use crate::shared_bytes::SharedBytes;
use fpga_protocol::cl_error::ClResult;
use opencl_sys::{CL_COMPLETE, cl_event, cl_mem};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `then` with the final status once the event's command has ended: on a thread of the vendor, or before this
/// function returns.
///
/// `then` must not block and must not call the vendor.
///
/// # Errors
/// The vendor's error; `then` is not called then.
pub fn on_end<F>(event: &Event, then: F) -> ClResult<()>
where
    F: FnOnce(i32) + Send + 'static,
{
    let data = Box::into_raw(Box::new(then));
    let registered = register(event, trampoline::<F>, data.cast());
    if registered.is_err() {
        // SAFETY: the vendor refused the callback, so no other code has the box.
        drop(unsafe { Box::from_raw(data) });
    }
    registered
}

fn register(
    event: &Event,
    function: unsafe extern "C" fn(cl_event, i32, *mut c_void),
    data: *mut c_void,
) -> ClResult<()> {
    // SAFETY: the event is live, and the function takes the data that is passed with it.
    check(unsafe { call!(clSetEventCallback(event.raw(), CL_COMPLETE, Some(function), data)) })
}

unsafe extern "C" fn trampoline<F: FnOnce(i32)>(_event: cl_event, status: i32, data: *mut c_void) {
    // SAFETY: `on_end` made the box for this one call, and OpenCL calls a callback once.
    let then = unsafe { Box::from_raw(data.cast::<F>()) };
    // A panic must not unwind into the vendor's frames, and there is no caller to report it to.
    let _ = catch_unwind(AssertUnwindSafe(|| then(status)));
}

impl Memory {
    /// Makes a buffer in shared memory, which stays mapped as long as the vendor has the buffer.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn in_shared_memory(context: &Context, flags: u64, bytes: SharedBytes) -> ClResult<Self> {
        let mut status = 0;
        let flags = flags | opencl_sys::CL_MEM_USE_HOST_PTR;
        let (address, size) = (bytes.address().cast(), bytes.len());
        // SAFETY: the context is live. The bytes stay mapped until the callback below reports that the vendor no
        // longer needs them.
        let memory = unsafe { call!(clCreateBuffer(context.raw(), flags, size, address, &raw mut status)) };
        let memory = Self::own(memory, status)?;
        on_destroyed(&memory, move || drop(bytes))?;
        Ok(memory)
    }
}

/// Calls `then` once the vendor no longer needs the buffer or its host memory.
///
/// # Errors
/// The vendor's error. The values in `then` are leaked in that case, since it is unknown how long the vendor needs
/// them.
pub(crate) fn on_destroyed<F>(memory: &Memory, then: F) -> ClResult<()>
where
    F: FnOnce() + Send + 'static,
{
    let data = Box::into_raw(Box::new(then));
    // SAFETY: the buffer is live, and the function takes the data that is passed with it.
    check(unsafe { call!(clSetMemObjectDestructorCallback(memory.raw(), Some(destroyed::<F>), data.cast())) })
}

unsafe extern "C" fn destroyed<F: FnOnce()>(_memory: cl_mem, data: *mut c_void) {
    // SAFETY: `on_destroyed` made the box for this one call, and OpenCL calls a callback once.
    let then = unsafe { Box::from_raw(data.cast::<F>()) };
    // A panic must not unwind into the vendor's frames, and there is no caller to report it to.
    let _ = catch_unwind(AssertUnwindSafe(then));
}

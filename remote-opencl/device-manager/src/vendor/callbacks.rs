//! The vendor's threads calling us back when a command has ended.

use super::api::call;
use super::handles::Handle as _;
use super::{ClResult, Event, Memory, check};
use opencl_sys::{CL_COMPLETE, cl_event, cl_mem};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `then` with the final status once the event's command has ended: on a thread of the vendor's, or at once.
///
/// `then` must not block and must not call the vendor.
///
/// # Errors
/// The vendor's; `then` is never called then.
pub fn on_end<F>(event: &Event, then: F) -> ClResult<()>
where
    F: FnOnce(i32) + Send + 'static,
{
    let data = Box::into_raw(Box::new(then));
    let registered = register(event, trampoline::<F>, data.cast());
    if registered.is_err() {
        // SAFETY: the vendor refused the callback, so nobody else has the box.
        drop(unsafe { Box::from_raw(data) });
    }
    registered
}

fn register(
    event: &Event,
    function: unsafe extern "C" fn(cl_event, i32, *mut c_void),
    data: *mut c_void,
) -> ClResult<()> {
    // SAFETY: the event is live; the function takes the data that is passed with it.
    check(unsafe { call!(clSetEventCallback(event.raw(), CL_COMPLETE, Some(function), data)) })
}

unsafe extern "C" fn trampoline<F: FnOnce(i32)>(_event: cl_event, status: i32, data: *mut c_void) {
    // SAFETY: `on_end` made the box for this one call; the standard calls a callback once.
    let then = unsafe { Box::from_raw(data.cast::<F>()) };
    // A panic must not unwind into the vendor's frames; there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| then(status)));
}

/// Calls `then` once the vendor needs nothing of the buffer any more, among that its host memory.
///
/// # Errors
/// The vendor's; what `then` holds is leaked in that case, since nobody will tell when it may go.
pub(super) fn on_destroyed<F>(memory: &Memory, then: F) -> ClResult<()>
where
    F: FnOnce() + Send + 'static,
{
    let data = Box::into_raw(Box::new(then));
    // SAFETY: the buffer is live; the function takes the data that is passed with it.
    check(unsafe { call!(clSetMemObjectDestructorCallback(memory.raw(), Some(destroyed::<F>), data.cast())) })
}

unsafe extern "C" fn destroyed<F: FnOnce()>(_memory: cl_mem, data: *mut c_void) {
    // SAFETY: `on_destroyed` made the box for this one call; the standard calls a callback once.
    let then = unsafe { Box::from_raw(data.cast::<F>()) };
    // A panic must not unwind into the vendor's frames; there is nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(then));
}

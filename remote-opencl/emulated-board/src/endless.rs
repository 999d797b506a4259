//! Commands that never end: a barrier that waits for an event of the board's own holds back what comes after it in its queue.

use crate::cl;
use crate::pocl::theirs;
use std::ffi::c_void;
use std::thread;
use std::time::Duration;

/// How often it is looked whether commands may end again.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// An event that is the board's own, until it is set.
struct Hold(cl::cl_event);

// SAFETY: events may be used from any thread, as the standard has it for all calls but `clSetKernelArg`.
unsafe impl Send for Hold {}

/// Has what comes next in this queue wait for as long as `waits` says so.
///
/// # Safety
/// `queue` is a live queue of PoCL's.
pub unsafe fn hold(queue: cl::cl_command_queue, waits: impl Fn() -> bool + Send + 'static) {
    if !waits() {
        return;
    }
    let Some(theirs) = theirs() else { return };
    let (Some(info), Some(create), Some(barrier), Some(set), Some(release)) = (
        theirs.clGetCommandQueueInfo,
        theirs.clCreateUserEvent,
        theirs.clEnqueueBarrierWithWaitList,
        theirs.clSetUserEventStatus,
        theirs.clReleaseEvent,
    ) else {
        return;
    };
    let mut context: cl::cl_context = std::ptr::null_mut();
    let (room, none) = ((&raw mut context).cast::<c_void>(), std::ptr::null_mut());
    // SAFETY: by this function's contract, and there is room for a handle.
    let status = unsafe { info(queue, cl::CL_QUEUE_CONTEXT, size_of::<cl::cl_context>(), room, none) };
    if status != cl::CL_SUCCESS {
        return;
    }
    // SAFETY: the queue's context lives as long as the queue.
    let event = unsafe { create(context, std::ptr::null_mut()) };
    if event.is_null() {
        return;
    }
    // SAFETY: a live queue, and a list of one live event.
    unsafe { barrier(queue, 1, &raw const event, std::ptr::null_mut()) };
    let hold = Hold(event);
    let started = thread::Builder::new().name("endless".to_owned()).spawn(move || {
        let hold = hold;
        while waits() {
            thread::sleep(LOOK_INTERVAL);
        }
        // SAFETY: the event is this thread's, and set once.
        unsafe { set(hold.0, cl::CL_COMPLETE) };
        // SAFETY: the last use of it here.
        unsafe { release(hold.0) };
    });
    if started.is_err() {
        // SAFETY: no thread has it: the command ends.
        unsafe { set(event, cl::CL_COMPLETE) };
    }
}

//! Commands that never end: a barrier that waits for a user event of the board holds back all later commands of its
//! queue.

use crate::cl;
use crate::pocl::theirs;
use std::ffi::c_void;
use std::thread;
use std::time::Duration;

/// Interval at which the thread checks whether commands may end again.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A user event of the board that has not been set yet.
struct Hold(cl::cl_event);

// SAFETY: the standard allows events in any thread; of all calls only `clSetKernelArg` is not thread-safe.
unsafe impl Send for Hold {}

/// Holds back the next commands in `queue` as long as `waits` returns true.
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
    // SAFETY: `queue` is live by this function's contract, and `room` has room for a handle.
    let status = unsafe { info(queue, cl::CL_QUEUE_CONTEXT, size_of::<cl::cl_context>(), room, none) };
    if status != cl::CL_SUCCESS {
        return;
    }
    // SAFETY: the queue's context lives as long as the queue.
    let event = unsafe { create(context, std::ptr::null_mut()) };
    if event.is_null() {
        return;
    }
    // SAFETY: the queue is live, and the list has one live event.
    unsafe { barrier(queue, 1, &raw const event, std::ptr::null_mut()) };
    let hold = Hold(event);
    let started = thread::Builder::new().name("endless".to_owned()).spawn(move || {
        let hold = hold;
        while waits() {
            thread::sleep(LOOK_INTERVAL);
        }
        // SAFETY: the event belongs to this thread and is set only once.
        unsafe { set(hold.0, cl::CL_COMPLETE) };
        // SAFETY: this thread doesn't use the event afterwards.
        unsafe { release(hold.0) };
    });
    if started.is_err() {
        // SAFETY: no thread has the event; setting it lets the commands end.
        unsafe { set(event, cl::CL_COMPLETE) };
    }
}

//! The wait list and the returned event of enqueue calls.

use crate::cl;
use crate::handle::{Handle, Object, lookup};
use crate::memory;
use crate::objects::{Event, Queue};
use fpga_client as client;
use fpga_client::ClError;
use std::sync::Arc;

/// The events of a wait list.
///
/// # Safety
/// `list` is NULL or has `count` events.
pub unsafe fn read(
    count: cl::cl_uint,
    list: *const cl::cl_event,
) -> Result<Vec<Arc<client::Event>>, ClError> {
    // CL_INVALID_EVENT_WAIT_LIST if event_wait_list is NULL and num_events_in_wait_list > 0, or event_wait_list is
    // not NULL and num_events_in_wait_list is 0, or if event objects in event_wait_list are not valid events.
    const INVALID: ClError = ClError(cl::CL_INVALID_EVENT_WAIT_LIST);
    if list.is_null() != (count == 0) {
        return Err(INVALID);
    }
    // SAFETY: the list is NULL or has `count` events by this function's contract.
    let handles = unsafe { memory::array(list, count as usize) }.map_err(|_| INVALID)?;
    let event = |handle: &cl::cl_event| {
        lookup::<Event>(*handle).map(|event| Arc::clone(&event.client)).map_err(|_| INVALID)
    };
    handles.iter().map(event).collect()
}

/// Whether a call waits for its command.
pub fn awaited(blocking: cl::cl_bool) -> client::Awaited {
    if blocking == cl::CL_FALSE { client::Awaited::No } else { client::Awaited::Yes }
}

/// Waits for the end of an enqueued command if the call is blocking.
pub fn wait_if(blocking: cl::cl_bool, command: &client::Event) -> Result<(), ClError> {
    if blocking == cl::CL_FALSE { Ok(()) } else { command.wait_for_status() }
}

/// Returns the event of an enqueued command to the application, if `target` is not NULL.
///
/// # Safety
/// `target` is NULL or writable.
pub unsafe fn give_event(queue: &Handle<Queue>, event: Arc<client::Event>, target: *mut cl::cl_event) {
    let command_type = event.command_type();
    // SAFETY: the caller upholds this function's contract.
    unsafe { give_event_of_type(queue, event, command_type, target) };
}

/// Returns an event like [`give_event`], with the given type of command instead of the client's.
///
/// # Safety
/// `target` is NULL or writable.
pub unsafe fn give_event_of_type(
    queue: &Handle<Queue>,
    client: Arc<client::Event>,
    command_type: u32,
    target: *mut cl::cl_event,
) {
    if target.is_null() {
        return;
    }
    let event =
        Event { client, context: Arc::clone(&queue.context), queue: Some(Arc::clone(queue)), command_type };
    // SAFETY: `target` is not NULL, so it is writable by this function's contract.
    unsafe { memory::write(target, Object::new(event).as_ptr()) };
}

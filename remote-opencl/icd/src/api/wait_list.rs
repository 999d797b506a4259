//! What all enqueue calls share: the wait list in, the event out.

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
    // SAFETY: `count` events by this function's contract.
    let handles = unsafe { memory::array(list, count as usize) }.map_err(|_| INVALID)?;
    let event = |handle: &cl::cl_event| {
        lookup::<Event>(*handle).map(|event| Arc::clone(&event.client)).map_err(|_| INVALID)
    };
    handles.iter().map(event).collect()
}

/// Whether the application waits for the command.
pub fn awaited(blocking: cl::cl_bool) -> client::Awaited {
    if blocking == cl::CL_FALSE { client::Awaited::No } else { client::Awaited::Yes }
}

/// Waits for the end of an enqueued command if the application asked to.
pub fn wait_if(blocking: cl::cl_bool, command: &client::Event) -> Result<(), ClError> {
    if blocking == cl::CL_FALSE { Ok(()) } else { command.wait_for_status() }
}

/// Hands the event of an enqueued command out, where the application wants it.
///
/// # Safety
/// `target` is NULL or writable.
pub unsafe fn give_event(queue: &Handle<Queue>, event: Arc<client::Event>, target: *mut cl::cl_event) {
    let command_type = event.command_type();
    // SAFETY: as promised by the caller.
    unsafe { give_event_of_type(queue, event, command_type, target) };
}

/// As [`give_event`], for a command that the client knows by another type.
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
    // SAFETY: not null, writable by this function's contract.
    unsafe { memory::write(target, Object::new(event).as_ptr()) };
}

//! Events: waiting, status, callbacks, profiling times.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Event, UserData};
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_void;
use std::sync::Arc;

type EventNotify = unsafe extern "C" fn(cl::cl_event, cl::cl_int, *mut c_void);

entry_points! {
    fn clWaitForEvents(count: cl::cl_uint, list: *const cl::cl_event) -> status {
        // CL_INVALID_VALUE if num_events is zero or event_list is NULL.
        if count == 0 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `count` events.
        let handles = unsafe { memory::array(list, count as usize)? };
        let event = |handle: &cl::cl_event| lookup::<Event>(*handle).map(|event| Arc::clone(&event.client));
        client::Event::wait_all(&handles.iter().map(event).collect::<Result<Vec<_>, _>>()?)
    }

    fn clGetEventInfo(
        event: cl::cl_event,
        param: cl::cl_event_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let event = lookup::<Event>(event)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_EVENT_COMMAND_QUEUE => {
                answer.value(event.queue.as_ref().map_or(std::ptr::null_mut(), |queue| queue.as_ptr()))
            }
            cl::CL_EVENT_CONTEXT => answer.value(event.context.as_ptr()),
            cl::CL_EVENT_COMMAND_TYPE => answer.value(event.command_type),
            cl::CL_EVENT_COMMAND_EXECUTION_STATUS => answer.value(event.client.status()),
            cl::CL_EVENT_REFERENCE_COUNT => answer.value(event.references()),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clGetEventProfilingInfo(
        event: cl::cl_event,
        param: cl::cl_profiling_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let event = lookup::<Event>(event)?;
        let times = event.client.profiling()?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_PROFILING_COMMAND_QUEUED => answer.value(times.queued),
            cl::CL_PROFILING_COMMAND_SUBMIT => answer.value(times.submitted),
            cl::CL_PROFILING_COMMAND_START => answer.value(times.started),
            // Commands enqueue no other commands, so the end of a command is its completion.
            cl::CL_PROFILING_COMMAND_END | cl::CL_PROFILING_COMMAND_COMPLETE => answer.value(times.ended),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clRetainEvent(event: cl::cl_event) -> status {
        retain::<Event>(event)
    }

    fn clReleaseEvent(event: cl::cl_event) -> status {
        release::<Event>(event)
    }

    fn clCreateUserEvent(context: cl::cl_context) -> pointer {
        let context = lookup::<Context>(context)?;
        let client = client::Event::user(&context.client)?;
        let event = Event { client, context, queue: None, command_type: cl::CL_COMMAND_USER };
        Ok(Object::new(event).as_ptr())
    }

    fn clSetUserEventStatus(event: cl::cl_event, status: cl::cl_int) -> status {
        lookup::<Event>(event)?.client.set_user_status(status)
    }

    fn clSetEventCallback(
        event: cl::cl_event,
        status: cl::cl_int,
        notify: Option<EventNotify>,
        user_data: *mut c_void,
    ) -> status {
        let event = lookup::<Event>(event)?;
        let notify = notify.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        let user_data = UserData(user_data);
        // The callback gets the handle, so the closure keeps the object alive.
        let handle = Arc::clone(&event);
        event.client.on_status(status, move |status| {
            let UserData(user_data) = { user_data };
            // SAFETY: the application passed this function to be called with these arguments.
            unsafe { notify(handle.as_ptr(), status, user_data) };
        })
    }
}

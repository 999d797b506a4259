//! Queues get the profiling property, for device timestamps. The layer hides the property from the application.

use crate::cl;
use crate::config::Profiling;
use crate::info::Room;
use crate::property_list::{Hidden, read_list, with_profiling};
use crate::state::guard;
use crate::table::{replace, target};
use std::ffi::c_void;

/// Puts this module's functions into `table`.
pub fn insert(table: &mut cl::cl_icd_dispatch) {
    replace!(table:
        clCreateCommandQueue clCreateCommandQueueWithProperties clRetainCommandQueue clReleaseCommandQueue
        clGetCommandQueueInfo clSetCommandQueueProperty clGetEventProfilingInfo
    );
}

/// Creates a queue with the profiling property, or, if that fails, as the application wants it.
fn create(
    with_profiling: impl FnOnce(*mut cl::cl_int) -> cl::cl_command_queue,
    as_it_came: impl FnOnce() -> cl::cl_command_queue,
    errcode_ret: *mut cl::cl_int,
    hidden: Option<Hidden>,
) -> cl::cl_command_queue {
    let wanted = guard(|layer| layer.profiling == Profiling::Add).unwrap_or(false);
    if let Some(hidden) = hidden.filter(|_| wanted) {
        let mut code = cl::CL_SUCCESS;
        let queue = with_profiling(&raw mut code);
        if !queue.is_null() {
            guard(|layer| layer.queues.created(queue, hidden));
            if !errcode_ret.is_null() {
                // SAFETY: `errcode_ret` is writable, as the standard requires of the application.
                unsafe { errcode_ret.write(code) };
            }
            return queue;
        }
    }
    let queue = as_it_came();
    if !queue.is_null() {
        guard(|layer| layer.queues.forget(queue));
    }
    queue
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateCommandQueue(
    context: cl::cl_context,
    device: cl::cl_device_id,
    properties: cl::cl_command_queue_properties,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_command_queue {
    let Some(call) = target().clCreateCommandQueue else { return std::ptr::null_mut() };
    let hidden = (properties & cl::CL_QUEUE_PROFILING_ENABLE == 0).then(|| Hidden { list: Vec::new() });
    create(
        // SAFETY: the application's arguments, except for one more property and where the code goes.
        |code| unsafe { call(context, device, properties | cl::CL_QUEUE_PROFILING_ENABLE, code) },
        // SAFETY: the application's arguments, passed on unchanged.
        || unsafe { call(context, device, properties, errcode_ret) },
        errcode_ret,
        hidden,
    )
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: cl::cl_context,
    device: cl::cl_device_id,
    properties: *const cl::cl_queue_properties,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_command_queue {
    let Some(call) = target().clCreateCommandQueueWithProperties else { return std::ptr::null_mut() };
    // SAFETY: `properties` is NULL or a list that ends with 0, as the standard requires of the application.
    let list = unsafe { read_list(properties) };
    let with = list.as_deref().and_then(with_profiling);
    let hidden = list.filter(|_| with.is_some()).map(|list| Hidden { list });
    let with = with.unwrap_or_default();
    create(
        // SAFETY: the application's arguments, except for the list, which is ours and ends with 0, and where the code
        // goes.
        |code| unsafe { call(context, device, with.as_ptr(), code) },
        // SAFETY: the application's arguments, passed on unchanged.
        || unsafe { call(context, device, properties, errcode_ret) },
        errcode_ret,
        hidden,
    )
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clRetainCommandQueue(queue: cl::cl_command_queue) -> cl::cl_int {
    let Some(call) = target().clRetainCommandQueue else { return cl::CL_INVALID_OPERATION };
    // SAFETY: the application's argument, passed on unchanged.
    let code = unsafe { call(queue) };
    if code == cl::CL_SUCCESS {
        guard(|layer| layer.queues.retained(queue));
    }
    code
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clReleaseCommandQueue(queue: cl::cl_command_queue) -> cl::cl_int {
    let Some(call) = target().clReleaseCommandQueue else { return cl::CL_INVALID_OPERATION };
    guard(|layer| layer.queues.released(queue));
    // SAFETY: the application's argument, passed on unchanged.
    unsafe { call(queue) }
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clGetCommandQueueInfo(
    queue: cl::cl_command_queue,
    name: cl::cl_command_queue_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl::cl_int {
    let Some(call) = target().clGetCommandQueueInfo else { return cl::CL_INVALID_OPERATION };
    let room = Room { size, value, size_ret };
    let hidden = match name {
        cl::CL_QUEUE_PROPERTIES | cl::CL_QUEUE_PROPERTIES_ARRAY => {
            guard(|layer| layer.queues.with(queue, |hidden| hidden.clone())).flatten()
        }
        _ => None,
    };
    let Some(hidden) = hidden else {
        // SAFETY: the application's arguments, passed on unchanged.
        return unsafe { call(queue, name, size, value, size_ret) };
    };
    if name == cl::CL_QUEUE_PROPERTIES_ARRAY {
        let bytes: Vec<u8> = hidden.list.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // SAFETY: the application's pointers, which are NULL or writable, as the standard requires.
        return unsafe { room.answer(&bytes) };
    }
    let mut properties: cl::cl_command_queue_properties = 0;
    let own = (&raw mut properties).cast();
    // SAFETY: the application's queue and a local variable of the right size.
    let code = unsafe { call(queue, name, size_of_val(&properties), own, std::ptr::null_mut()) };
    if code != cl::CL_SUCCESS {
        return code;
    }
    // SAFETY: the application's pointers, which are NULL or writable, as the standard requires.
    unsafe { room.answer(&(properties & !cl::CL_QUEUE_PROFILING_ENABLE).to_ne_bytes()) }
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clSetCommandQueueProperty(
    queue: cl::cl_command_queue,
    properties: cl::cl_command_queue_properties,
    enable: cl::cl_bool,
    old: *mut cl::cl_command_queue_properties,
) -> cl::cl_int {
    let Some(call) = target().clSetCommandQueueProperty else { return cl::CL_INVALID_OPERATION };
    // SAFETY: the application's arguments, passed on unchanged.
    let code = unsafe { call(queue, properties, enable, old) };
    if code == cl::CL_SUCCESS {
        let hidden = guard(|layer| layer.queues.with(queue, |_| ())).flatten().is_some();
        // SAFETY: `old` is NULL, or the call above has just written to it.
        if let Some(old) = unsafe { old.as_mut() }.filter(|_| hidden) {
            *old &= !cl::CL_QUEUE_PROFILING_ENABLE;
        }
        if properties & cl::CL_QUEUE_PROFILING_ENABLE != 0 {
            // From here on the application itself controls the property.
            guard(|layer| layer.queues.forget(queue));
        }
    }
    code
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clGetEventProfilingInfo(
    event: cl::cl_event,
    name: cl::cl_profiling_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl::cl_int {
    let Some(call) = target().clGetEventProfilingInfo else { return cl::CL_INVALID_OPERATION };
    // SAFETY: `event` is what the application passes as an event.
    let queue = unsafe { queue_of(event) };
    let hidden = queue.and_then(|queue| guard(|layer| layer.queues.with(queue, |_| ())).flatten());
    if hidden.is_some() {
        return cl::CL_PROFILING_INFO_NOT_AVAILABLE;
    }
    // SAFETY: the application's arguments, passed on unchanged.
    unsafe { call(event, name, size, value, size_ret) }
}

/// # Safety
/// `event` is what an application may pass to the runtime as an event.
unsafe fn queue_of(event: cl::cl_event) -> Option<cl::cl_command_queue> {
    let mut queue: cl::cl_command_queue = std::ptr::null_mut();
    let info = target().clGetEventInfo?;
    let room = (&raw mut queue).cast();
    // SAFETY: the event is the application's, and `room` points to a variable of the right size.
    let code =
        unsafe { info(event, cl::CL_EVENT_COMMAND_QUEUE, size_of_val(&queue), room, std::ptr::null_mut()) };
    (code == cl::CL_SUCCESS && !queue.is_null()).then_some(queue)
}

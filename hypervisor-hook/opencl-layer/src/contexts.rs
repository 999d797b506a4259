//! Contexts. When the application releases the last reference to one, the layer waits for reports, since the
//! application may exit next.

use crate::cl;
use crate::state::guard;
use crate::table::{replace, target};
use std::ffi::{c_char, c_void};

type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;

/// Puts this module's functions into `table`.
pub fn insert(table: &mut cl::cl_icd_dispatch) {
    replace!(table: clCreateContext clCreateContextFromType clRetainContext clReleaseContext);
}

fn created(context: cl::cl_context) -> cl::cl_context {
    if !context.is_null() {
        guard(|layer| layer.contexts.created(context, ()));
    }
    context
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateContext(
    properties: *const cl::cl_context_properties,
    num_devices: cl::cl_uint,
    devices: *const cl::cl_device_id,
    notify: Notify,
    data: *mut c_void,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_context {
    let Some(call) = target().clCreateContext else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    created(unsafe { call(properties, num_devices, devices, notify, data, errcode_ret) })
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateContextFromType(
    properties: *const cl::cl_context_properties,
    device_type: cl::cl_device_type,
    notify: Notify,
    data: *mut c_void,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_context {
    let Some(call) = target().clCreateContextFromType else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    created(unsafe { call(properties, device_type, notify, data, errcode_ret) })
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clRetainContext(context: cl::cl_context) -> cl::cl_int {
    let Some(call) = target().clRetainContext else { return cl::CL_INVALID_OPERATION };
    // SAFETY: the application's argument, passed on unchanged.
    let code = unsafe { call(context) };
    if code == cl::CL_SUCCESS {
        guard(|layer| layer.contexts.retained(context));
    }
    code
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clReleaseContext(context: cl::cl_context) -> cl::cl_int {
    let Some(call) = target().clReleaseContext else { return cl::CL_INVALID_OPERATION };
    guard(|layer| {
        if layer.contexts.released(context) {
            layer.settle();
        }
    });
    // SAFETY: the application's argument, passed on unchanged.
    unsafe { call(context) }
}

//! The contexts of this process, which keep other processes from loading a board that processes share.
#![allow(non_snake_case, reason = "the standard's names")]

use crate::cl;
use crate::controls::Controls;
use crate::pocl::theirs;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};

/// The program's references to each context, by its address.
static REFERENCES: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);

type Notify = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);

/// Puts the functions of this module into PoCL's table.
pub fn insert(table: &mut cl::cl_icd_dispatch) {
    table.clCreateContext = Some(clCreateContext);
    table.clRetainContext = Some(clRetainContext);
    table.clReleaseContext = Some(clReleaseContext);
}

/// Changes the references to a context, and tells the other processes how many contexts this one has.
fn count(context: cl::cl_context, change: impl FnOnce(u64) -> u64) {
    let mut all = REFERENCES.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    let references = all.entry(context as usize).or_default();
    *references = change(*references);
    all.retain(|_, references| *references > 0);
    Controls::of_this_process().has_contexts(all.len());
}

unsafe extern "C" fn clCreateContext(
    properties: *const cl::cl_context_properties,
    num_devices: cl::cl_uint,
    devices: *const cl::cl_device_id,
    notify: Option<Notify>,
    user_data: *mut c_void,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_context {
    let Some(call) = theirs().and_then(|theirs| theirs.clCreateContext) else { return std::ptr::null_mut() };
    // SAFETY: the arguments are the caller's, unchanged.
    let context = unsafe { call(properties, num_devices, devices, notify, user_data, errcode_ret) };
    if !context.is_null() {
        count(context, |references| references + 1);
    }
    context
}

unsafe extern "C" fn clRetainContext(context: cl::cl_context) -> cl::cl_int {
    let Some(call) = theirs().and_then(|theirs| theirs.clRetainContext) else {
        return cl::CL_INVALID_OPERATION;
    };
    count(context, |references| references + 1);
    // SAFETY: the argument is the caller's, unchanged.
    unsafe { call(context) }
}

unsafe extern "C" fn clReleaseContext(context: cl::cl_context) -> cl::cl_int {
    let Some(call) = theirs().and_then(|theirs| theirs.clReleaseContext) else {
        return cl::CL_INVALID_OPERATION;
    };
    // SAFETY: the argument is the caller's, unchanged.
    let status = unsafe { call(context) };
    count(context, |references| references.saturating_sub(1));
    status
}

//! Look-up of functions by name.

use crate::api::{pipe, usm};
use crate::cl;
use crate::dispatch::address_of;
use crate::exports;
use crate::handle::lookup;
use crate::memory;
use crate::platforms::Platform;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;

/// `cl_int clSetTraceContextFPGA(const char *traceparent, const char *tracestate)`: the trace (W3C Trace Context) that the
/// calling thread's commands and calls are a part of from now on. With NULL for `traceparent` they are part of none;
/// `tracestate` may be NULL.
///
/// `CL_INVALID_VALUE` for a malformed `traceparent`: the commands are part of no trace then.
///
/// # Safety
/// `traceparent` and `tracestate` are NULL or NUL-terminated strings.
#[allow(non_snake_case, reason = "named as OpenCL names functions of extensions")]
pub unsafe extern "C" fn clSetTraceContextFPGA(
    traceparent: *const c_char,
    tracestate: *const c_char,
) -> cl::cl_int {
    // SAFETY: the caller upholds this function's contract.
    let (traceparent, tracestate) = unsafe { (memory::text(traceparent), memory::text(tracestate)) };
    let set = || {
        let state = tracestate.map(CStr::to_bytes).unwrap_or_default();
        fpga_client::set_trace(traceparent.map(CStr::to_bytes), state)
    };
    match catch_unwind(set) {
        Ok(Ok(())) => cl::CL_SUCCESS,
        Ok(Err(_)) => cl::CL_INVALID_VALUE,
        Err(_) => cl::CL_OUT_OF_RESOURCES,
    }
}

/// The address of a function, or NULL for an unknown name.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller upholds this function's contract.
    let Some(name) = (unsafe { memory::text(name) }) else { return std::ptr::null_mut() };
    catch_unwind(|| match name.to_str() {
        Ok("clSetTraceContextFPGA") => clSetTraceContextFPGA as *mut c_void,
        Ok("clIcdGetPlatformIDsKHR") => exports::clIcdGetPlatformIDsKHR as *mut c_void,
        Ok(name) => match address_of(name).cast_mut() {
            address if !address.is_null() => address,
            _ => match usm::address_of(name) {
                address if !address.is_null() => address,
                _ => pipe::address_of(name),
            },
        },
        Err(_) => std::ptr::null_mut(),
    })
    .unwrap_or(std::ptr::null_mut())
}

/// The address of a function, like [`clGetExtensionFunctionAddress`]: all platforms have the same functions. NULL
/// for an invalid platform.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl::cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    // The functions of these extensions are known where a device has what they are for.
    let known =
        catch_unwind(|| lookup::<Platform>(platform).map(|known| (usm::is_on(&known), pipe::is_on(&known))));
    let Ok(Ok((has_usm, has_host_pipes))) = known else { return std::ptr::null_mut() };
    // SAFETY: the caller upholds this function's contract.
    let is_missing = unsafe { memory::text(name) }.and_then(|name| name.to_str().ok()).is_some_and(|name| {
        !has_usm && !usm::address_of(name).is_null() || !has_host_pipes && !pipe::address_of(name).is_null()
    });
    if is_missing {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { clGetExtensionFunctionAddress(name) }
}

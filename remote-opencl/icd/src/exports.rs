//! The only symbols that the library exports: those by which ICD loaders find everything else.
//!
//! They are shells of their own: a call inside the library to an exported `cl*` symbol would bind to the loader's
//! function of that name and come back to us without end.

use crate::api::{extension, platform};
use crate::cl;
use std::ffi::{c_char, c_void};

/// Where a loader looks the other functions up.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: passed on as promised by the caller.
    unsafe { extension::clGetExtensionFunctionAddress(name) }
}

/// Lists the platforms (cl_khr_icd).
///
/// # Safety
/// As clGetPlatformIDs in the OpenCL standard.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    capacity: cl::cl_uint,
    platforms: *mut cl::cl_platform_id,
    count: *mut cl::cl_uint,
) -> cl::cl_int {
    // SAFETY: passed on as promised by the caller.
    unsafe { platform::clGetPlatformIDs(capacity, platforms, count) }
}

/// Asked by some loaders before they have a dispatch table.
///
/// # Safety
/// As in the OpenCL standard.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform: cl::cl_platform_id,
    param: cl::cl_platform_info,
    room: usize,
    value: *mut c_void,
    size: *mut usize,
) -> cl::cl_int {
    // SAFETY: passed on as promised by the caller.
    unsafe { platform::clGetPlatformInfo(platform, param, room, value, size) }
}

//! The only symbols that the library exports. ICD loaders find all other functions through them.
//!
//! They are wrappers: a call inside the library to an exported `cl*` symbol would bind to the loader's function of
//! that name, which calls the library again, without end.

use crate::api::{extension, platform};
use crate::cl;
use std::ffi::{c_char, c_void};

/// Returns the address of a function by its name. Loaders look up the other functions with it.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller upholds the same contract.
    unsafe { extension::clGetExtensionFunctionAddress(name) }
}

/// Returns the platforms (cl_khr_icd).
///
/// # Safety
/// The contract of clGetPlatformIDs in the OpenCL standard.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    capacity: cl::cl_uint,
    platforms: *mut cl::cl_platform_id,
    count: *mut cl::cl_uint,
) -> cl::cl_int {
    // SAFETY: the caller upholds the same contract.
    unsafe { platform::clGetPlatformIDs(capacity, platforms, count) }
}

/// Returns a property of a platform. Some loaders call it before they have a dispatch table.
///
/// # Safety
/// The contract of clGetPlatformInfo in the OpenCL standard.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform: cl::cl_platform_id,
    param: cl::cl_platform_info,
    room: usize,
    value: *mut c_void,
    size: *mut usize,
) -> cl::cl_int {
    // SAFETY: the caller upholds the same contract.
    unsafe { platform::clGetPlatformInfo(platform, param, room, value, size) }
}

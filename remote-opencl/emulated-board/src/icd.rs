//! The functions that an ICD loader looks for.
#![allow(non_snake_case, reason = "the standard's names")]

use crate::cl;
use crate::contexts;
use crate::controls::Controls;
use crate::image;
use crate::pocl::{pocl, take_over};
use std::ffi::{CStr, c_char, c_void};

/// `CL_PLATFORM_NOT_FOUND_KHR`
const NO_PLATFORM: cl::cl_int = -1001;

/// PoCL's platforms, with the board's functions in their table.
///
/// # Safety
/// As in the standard: `platforms` is NULL or has room for `num`, and `num_ret` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num: cl::cl_uint,
    platforms: *mut cl::cl_platform_id,
    num_ret: *mut cl::cl_uint,
) -> cl::cl_int {
    let Some(pocl) = pocl() else { return NO_PLATFORM };
    // Opened here, so that a test sees the control file as soon as the runtime is loaded.
    Controls::of_this_process();
    let mut first: cl::cl_platform_id = std::ptr::null_mut();
    // SAFETY: `first` has room for one platform.
    if unsafe { (pocl.platforms)(1, &raw mut first, std::ptr::null_mut()) } == 0 && !first.is_null() {
        // SAFETY: the platform is PoCL's.
        unsafe {
            take_over(first, |table| {
                image::insert(table);
                contexts::insert(table);
            });
        };
    }
    // SAFETY: the arguments are the loader's, unchanged.
    unsafe { (pocl.platforms)(num, platforms, num_ret) }
}

/// The address of an extension's function.
///
/// # Safety
/// `name` ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: by this function's contract.
    if unsafe { CStr::from_ptr(name) } == c"clIcdGetPlatformIDsKHR" {
        return clIcdGetPlatformIDsKHR as *mut c_void;
    }
    // SAFETY: by this function's contract.
    pocl().map_or(std::ptr::null_mut(), |pocl| unsafe { (pocl.function)(name) })
}

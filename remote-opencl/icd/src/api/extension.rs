//! Look-up of functions by name.

use crate::cl;
use crate::dispatch::address_of;
use crate::exports;
use crate::handle::lookup;
use crate::memory;
use crate::platforms::Platform;
use std::ffi::{c_char, c_void};
use std::panic::catch_unwind;

/// The address of a function, or NULL for an unknown name.
///
/// # Safety
/// `name` is NULL or a NUL-terminated string.
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller upholds this function's contract.
    let Some(name) = (unsafe { memory::text(name) }) else { return std::ptr::null_mut() };
    catch_unwind(|| match name.to_str() {
        Ok("clIcdGetPlatformIDsKHR") => exports::clIcdGetPlatformIDsKHR as *mut c_void,
        Ok(name) => address_of(name).cast_mut(),
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
    let known = catch_unwind(|| lookup::<Platform>(platform).is_ok()).unwrap_or(false);
    if !known {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { clGetExtensionFunctionAddress(name) }
}

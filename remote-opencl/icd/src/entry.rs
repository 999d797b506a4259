//! The wrapper of every C entry point: panics are caught, and errors become the return value or `errcode_ret`.
//!
//! The body of an entry point returns `Result<_, ClError>`. It checks pointers, looks handles up, and calls the
//! client.

use crate::cl;
use fpga_client::ClError;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The error code for a panic. An application can't react to a more specific one.
const PANICKED: ClError = ClError(cl::CL_OUT_OF_HOST_MEMORY);

/// Runs the body of a function that returns an error code.
pub fn status(body: impl FnOnce() -> Result<(), ClError>) -> cl::cl_int {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(PANICKED)) {
        Ok(()) => cl::CL_SUCCESS,
        Err(error) => error.0,
    }
}

/// Runs the body of a function that returns a pointer, or NULL on failure. The error code goes to `errcode_ret`.
///
/// # Safety
/// `errcode_ret` is NULL or points to writable memory for a `cl_int`.
pub unsafe fn pointer(
    errcode_ret: *mut cl::cl_int,
    body: impl FnOnce() -> Result<*mut c_void, ClError>,
) -> *mut c_void {
    // SAFETY: the caller upholds this function's contract.
    unsafe { pointer_and_code(errcode_ret, || body().map(|pointer| (pointer, cl::CL_SUCCESS))) }
}

/// Runs the body of a function that may return a pointer together with an error code.
///
/// # Safety
/// `errcode_ret` is NULL or points to writable memory for a `cl_int`.
pub unsafe fn pointer_and_code(
    errcode_ret: *mut cl::cl_int,
    body: impl FnOnce() -> Result<(*mut c_void, cl::cl_int), ClError>,
) -> *mut c_void {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(PANICKED));
    let (pointer, code) = result.unwrap_or_else(|error| (std::ptr::null_mut(), error.0));
    if !errcode_ret.is_null() {
        // SAFETY: the pointer is not NULL, so it is writable by this function's contract.
        unsafe { errcode_ret.write(code) };
    }
    pointer
}

/// Defines entry points. `-> status` returns an error code. `-> pointer` adds a last parameter `errcode_ret`; so
/// does `-> pointer_and_code`, whose body returns both the pointer and the code.
///
/// The contract of an entry point is that of the OpenCL standard: each pointer is NULL or valid for the values that
/// the function reads or writes through it.
macro_rules! entry_points {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $kind:ident $body:block)*) => {
        $($crate::entry::entry_points!(@$kind $(#[$meta])* $name($($arg: $type),*) $body);)*
    };
    (@status $(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the standard's names")]
        #[allow(clippy::too_many_arguments, reason = "the standard's signatures")]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::cl::cl_int {
            $crate::entry::status(|| $body)
        }
    };
    (@pointer_and_code $(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the standard's names")]
        #[allow(clippy::too_many_arguments, reason = "the standard's signatures")]
        pub unsafe extern "C" fn $name(
            $($arg: $type,)*
            errcode_ret: *mut $crate::cl::cl_int,
        ) -> *mut std::ffi::c_void {
            let body =
                || -> Result<(*mut std::ffi::c_void, $crate::cl::cl_int), fpga_client::ClError> { $body };
            // SAFETY: the caller guarantees that `errcode_ret` is NULL or writable, as the standard requires.
            unsafe { $crate::entry::pointer_and_code(errcode_ret, body) }
        }
    };
    (@pointer $(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the standard's names")]
        #[allow(clippy::too_many_arguments, reason = "the standard's signatures")]
        pub unsafe extern "C" fn $name(
            $($arg: $type,)*
            errcode_ret: *mut $crate::cl::cl_int,
        ) -> *mut std::ffi::c_void {
            let body = || -> Result<*mut std::ffi::c_void, fpga_client::ClError> { $body };
            // SAFETY: the caller guarantees that `errcode_ret` is NULL or writable, as the standard requires.
            unsafe { $crate::entry::pointer(errcode_ret, body) }
        }
    };
}
pub(crate) use entry_points;

#[cfg(test)]
mod tests {
    use super::*;

    entry_points! {
        fn clTestStatus(value: cl::cl_int) -> status {
            assert!(value != 13, "a bug");
            if value == 0 { Ok(()) } else { Err(ClError(value)) }
        }

        fn clTestPointer(value: *mut c_void) -> pointer {
            assert!(!value.is_null(), "a bug");
            if value as usize == 1 { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(value) }
        }
    }

    #[test]
    fn results_become_return_values() {
        // SAFETY: the function has no pointers.
        unsafe {
            assert_eq!(clTestStatus(0), 0);
            assert_eq!(clTestStatus(-5), -5);
        }
    }

    #[test]
    fn a_panic_becomes_an_error_code() {
        let mut code = 1;
        // SAFETY: `code` is writable.
        unsafe {
            assert_eq!(clTestStatus(13), cl::CL_OUT_OF_HOST_MEMORY);
            assert!(clTestPointer(std::ptr::null_mut(), &raw mut code).is_null());
        }
        assert_eq!(code, cl::CL_OUT_OF_HOST_MEMORY);
    }

    #[test]
    fn errcode_ret_is_written_and_may_be_null() {
        let mut code = 1;
        // SAFETY: `errcode_ret` is NULL or points to `code`.
        unsafe {
            assert!(clTestPointer(std::ptr::dangling_mut(), &raw mut code).is_null());
            assert_eq!(code, cl::CL_INVALID_VALUE);
            assert_eq!(clTestPointer(8 as *mut c_void, &raw mut code) as usize, 8);
            assert_eq!(code, cl::CL_SUCCESS);
            assert_eq!(clTestPointer(8 as *mut c_void, std::ptr::null_mut()) as usize, 8);
        }
    }
}

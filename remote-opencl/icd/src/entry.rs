//! The shell around every C entry point: no panic crosses it, errors become the return value or `errcode_ret`.
//!
//! Bodies are ordinary code that returns `Result<_, ClError>`; they check pointers, look handles up, and call.

use crate::cl;
use fpga_client::ClError;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic of ours is to the application: it can't act on anything finer.
const PANICKED: ClError = ClError(cl::CL_OUT_OF_HOST_MEMORY);

/// Runs the body of a function that returns an error code.
pub fn status(body: impl FnOnce() -> Result<(), ClError>) -> cl::cl_int {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(PANICKED)) {
        Ok(()) => cl::CL_SUCCESS,
        Err(error) => error.0,
    }
}

/// Runs the body of a function that returns a pointer, NULL on failure, and its error code through `errcode_ret`.
///
/// # Safety
/// `errcode_ret` is NULL or points to writable memory for a `cl_int`.
pub unsafe fn pointer(
    errcode_ret: *mut cl::cl_int,
    body: impl FnOnce() -> Result<*mut c_void, ClError>,
) -> *mut c_void {
    // SAFETY: as promised by the caller.
    unsafe { pointer_and_code(errcode_ret, || body().map(|pointer| (pointer, cl::CL_SUCCESS))) }
}

/// As [`pointer`], for the function whose pointer may come with an error code.
///
/// # Safety
/// As [`pointer`].
pub unsafe fn pointer_and_code(
    errcode_ret: *mut cl::cl_int,
    body: impl FnOnce() -> Result<(*mut c_void, cl::cl_int), ClError>,
) -> *mut c_void {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(PANICKED));
    let (pointer, code) = result.unwrap_or_else(|error| (std::ptr::null_mut(), error.0));
    if !errcode_ret.is_null() {
        // SAFETY: not null, so writable by this function's contract.
        unsafe { errcode_ret.write(code) };
    }
    pointer
}

/// Defines entry points. `-> status` returns an error code; `-> pointer` takes an additional `errcode_ret` at the end,
/// and so does `-> pointer_and_code`, whose body gives both.
///
/// The callers' duties are those of the OpenCL standard: each pointer is NULL or valid for what the function reads or
/// writes through it.
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
            // SAFETY: `errcode_ret` is the caller's, who keeps the standard.
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
            // SAFETY: `errcode_ret` is the caller's, who keeps the standard.
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
        // SAFETY: no pointers.
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
        // SAFETY: `code` is writable or NULL is given.
        unsafe {
            assert!(clTestPointer(std::ptr::dangling_mut(), &raw mut code).is_null());
            assert_eq!(code, cl::CL_INVALID_VALUE);
            assert_eq!(clTestPointer(8 as *mut c_void, &raw mut code) as usize, 8);
            assert_eq!(code, cl::CL_SUCCESS);
            assert_eq!(clTestPointer(8 as *mut c_void, std::ptr::null_mut()) as usize, 8);
        }
    }
}

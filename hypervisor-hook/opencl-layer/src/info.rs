//! Answers of `clGet…Info` functions.

use crate::cl;
use std::ffi::c_void;

/// The caller's buffer for the answer of a `clGet…Info` function.
#[derive(Clone, Copy)]
pub struct Room {
    pub size: usize,
    pub value: *mut c_void,
    pub size_ret: *mut usize,
}

impl Room {
    /// Answers with `bytes` as the standard requires: pointers may be NULL, and too small a buffer is an error.
    ///
    /// # Safety
    /// Each pointer is NULL or writable, `value` for `size` bytes.
    pub unsafe fn answer(self, bytes: &[u8]) -> cl::cl_int {
        if !self.value.is_null() {
            if self.size < bytes.len() {
                return cl::CL_INVALID_VALUE;
            }
            // SAFETY: `value` is writable for `size` bytes by this function's contract, and `bytes` is not longer.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.value.cast::<u8>(), bytes.len()) };
        }
        if !self.size_ret.is_null() {
            // SAFETY: writable by this function's contract.
            unsafe { self.size_ret.write(bytes.len()) };
        }
        cl::CL_SUCCESS
    }
}

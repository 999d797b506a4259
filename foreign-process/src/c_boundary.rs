//! The boundary between a library and programs in C: no panic crosses it, and an error becomes a number and a text per
//! thread.
#![allow(unsafe_code)]

mod text;

pub use text::{TextError, optional_text, required_text};

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Size in bytes of the buffer for an error's text, with the final NUL.
const MAX_ERROR_BYTES: usize = 512;

/// The error of a call.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    /// An error with what the function returns, a negative number, and a text for people.
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

thread_local! {
    // No destructor, so that none of the library's code runs when a thread or the process ends.
    static LAST_ERROR: UnsafeCell<[u8; MAX_ERROR_BYTES]> = const { UnsafeCell::new([0; MAX_ERROR_BYTES]) };
}

/// Runs the body of a function that C calls; returns its number, or that of its failure. A panic becomes `panicked`.
pub fn call(panicked: fn() -> Failure, body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    match result.unwrap_or_else(|_| Err(panicked())) {
        Ok(number) => number,
        Err(Failure { code, text }) => {
            set_last_error(&text);
            code
        }
    }
}

/// The text of this thread's last failure, which ends with NUL; empty before the first.
pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|buffer| buffer.get().cast_const().cast())
}

fn set_last_error(text: &str) {
    let mut length = text.len().min(MAX_ERROR_BYTES - 1);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    LAST_ERROR.with(|buffer| {
        // SAFETY: the buffer is this thread's own, and no reference to it is ever kept.
        let buffer = unsafe { &mut *buffer.get() };
        buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
        buffer[length] = 0;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last_text() -> String {
        // SAFETY: the buffer ends with NUL and lives as long as the thread.
        unsafe { CStr::from_ptr(last_error()) }.to_str().unwrap().to_owned()
    }

    fn run(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
        call(|| Failure::new(-5, "a bug"), body)
    }

    #[test]
    fn a_failure_becomes_its_number_and_a_text() {
        assert_eq!(run(|| Ok(3)), 3);
        assert_eq!(last_text(), "");
        assert_eq!(run(|| Err(Failure::new(-22, "no such thing"))), -22);
        assert_eq!(last_text(), "no such thing");
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(run(|| panic!("a bug")), -5);
        assert_eq!(last_text(), "a bug");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        run(|| Err(Failure::new(-1, "é".repeat(400))));
        assert_eq!(last_text(), "é".repeat(255));
    }
}

//! The wrapper around every C entry point: no panic crosses it, and an error becomes a negative errno and a text per
//! thread.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Size in bytes of the buffer for an error's text, with the final NUL.
const MAX_TEXT: usize = 256;

/// The error of a call.
#[derive(Debug)]
pub struct Failure {
    errno: c_int,
    text: String,
}

impl Failure {
    /// An error with one of libc's positive error numbers and a text for people.
    pub fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// The error of an invalid argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

thread_local! {
    // No destructor, so that none of the library's code runs when a thread or the process ends.
    static LAST_ERROR: UnsafeCell<[u8; MAX_TEXT]> = const { UnsafeCell::new([0; MAX_TEXT]) };
}

/// Runs the body of an entry point; returns 0 or the negative errno.
pub fn status(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|_| Err(Failure::new(libc::EIO, "a bug in libfpga_hook")));
    match result {
        Ok(()) => 0,
        Err(Failure { errno, text }) => {
            set_last_error(&text);
            -errno
        }
    }
}

/// The text of this thread's last failure; empty before the first.
pub fn last_error() -> *const c_char {
    LAST_ERROR.with(|buffer| buffer.get().cast_const().cast())
}

fn set_last_error(text: &str) {
    let mut length = text.len().min(MAX_TEXT - 1);
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

    #[test]
    fn a_failure_becomes_a_negative_errno_and_a_text() {
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(last_text(), "");
        assert_eq!(status(|| Err(Failure::invalid("no such thing"))), -libc::EINVAL);
        assert_eq!(last_text(), "no such thing");
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(status(|| panic!("a bug")), -libc::EIO);
        assert!(last_text().contains("bug"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        status(|| Err(Failure::invalid("é".repeat(200))));
        assert_eq!(last_text(), "é".repeat(127));
    }
}

//! The wrapper around every C entry point: an error becomes a negative errno, and a panic -EIO.

use fpga_foreign_process::c_boundary::{self, Failure};
use std::ffi::c_int;

/// An error with one of libc's positive error numbers and a text for people.
pub fn failure(errno: c_int, text: impl Into<String>) -> Failure {
    Failure::new(-errno, text)
}

/// The error of an invalid argument.
pub fn invalid(text: impl Into<String>) -> Failure {
    failure(libc::EINVAL, text)
}

/// Runs the body of an entry point; returns 0 or the negative errno.
pub fn status(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    c_boundary::call(|| failure(libc::EIO, "a bug in libfpga_hook"), || body().map(|()| 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_becomes_a_negative_errno() {
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(status(|| Err(invalid("no such thing"))), -libc::EINVAL);
        assert_eq!(status(|| panic!("a bug")), -libc::EIO);
    }
}

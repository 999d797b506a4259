//! C strings from the caller.

use crate::entry::{failure, invalid};
use fpga_foreign_process::c_boundary::{Failure, TextError, optional_text, required_text};
use std::ffi::c_char;

/// Maximum length of a text of an event, in bytes.
pub const MAX_TEXT: usize = 128;

/// The text at `pointer`, of at most `most` bytes; empty for NULL. `what` names it in errors.
///
/// # Safety
/// `pointer` is NULL or points to a string that ends with NUL.
pub unsafe fn optional<'a>(pointer: *const c_char, what: &str, most: usize) -> Result<&'a str, Failure> {
    // SAFETY: this function's contract is the same.
    unsafe { optional_text(pointer, most) }.map_err(|error| unusable(what, error))
}

/// The text at `pointer`, as in [`optional`]; an error if it is NULL or empty.
///
/// # Safety
/// As for [`optional`].
pub unsafe fn required<'a>(pointer: *const c_char, what: &str, most: usize) -> Result<&'a str, Failure> {
    // SAFETY: this function's contract is the same.
    unsafe { required_text(pointer, most) }.map_err(|error| unusable(what, error))
}

fn unusable(what: &str, error: TextError) -> Failure {
    let text = format!("{what} {error}");
    match error {
        TextError::TooLong { .. } => failure(libc::ENAMETOOLONG, text),
        TextError::NotUtf8 | TextError::Missing => invalid(text),
    }
}

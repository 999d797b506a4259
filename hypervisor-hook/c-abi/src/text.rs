//! C strings from the caller: bounded in length and checked to be UTF-8.

use crate::entry::Failure;
use std::ffi::c_char;

/// Maximum length of a text of an event, in bytes.
pub const MAX_TEXT: usize = 128;

/// The text at `pointer`, of at most `most` bytes; empty for NULL. `what` names it in errors.
///
/// # Safety
/// `pointer` is NULL or points to a string that ends with NUL.
pub unsafe fn optional<'a>(pointer: *const c_char, what: &str, most: usize) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Ok("");
    }
    // Bounded, so that a missing NUL does not make the scan endless.
    // SAFETY: a string by this function's contract, so each byte up to its NUL is readable.
    let length = unsafe { libc::strnlen(pointer, most + 1) };
    if length > most {
        return Err(Failure::new(libc::ENAMETOOLONG, format!("{what} has more than {most} bytes")));
    }
    // SAFETY: `strnlen` has just read `length` bytes there.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    std::str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// The text at `pointer`, as in [`optional`]; an error if it is NULL or empty.
///
/// # Safety
/// As for [`optional`].
pub unsafe fn required<'a>(pointer: *const c_char, what: &str, most: usize) -> Result<&'a str, Failure> {
    // SAFETY: this function's contract is that of `optional`.
    match unsafe { optional(pointer, what, most) }? {
        "" => Err(Failure::invalid(format!("{what} is NULL or empty"))),
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn take(text: &[u8]) -> Result<String, Failure> {
        let text = CString::new(text).unwrap();
        // SAFETY: `text` is a C string.
        unsafe { required(text.as_ptr(), "it", MAX_TEXT) }.map(str::to_owned)
    }

    #[test]
    fn texts_are_copied_and_bad_ones_refused() {
        assert_eq!(take(b"sobel").unwrap(), "sobel");
        assert_eq!(take(&[b'x'; MAX_TEXT]).unwrap().len(), MAX_TEXT);
        assert!(take(&[b'x'; MAX_TEXT + 1]).is_err());
        assert!(take(b"\xff").is_err());
        assert!(take(b"").is_err());
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { optional(std::ptr::null(), "it", MAX_TEXT) }.unwrap(), "");
    }
}

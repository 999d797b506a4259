//! C strings from the caller: bounded in length and checked to be UTF-8.

use std::ffi::c_char;

/// A text of the caller can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is too long.
    #[error("has more than {most} bytes")]
    TooLong {
        /// Maximum number of bytes.
        most: usize,
    },
    /// The text is not UTF-8.
    #[error("is not UTF-8")]
    NotUtf8,
    /// There is no text.
    #[error("is NULL or empty")]
    Missing,
}

/// The text at `pointer`, of at most `most` bytes; empty for NULL.
///
/// # Errors
/// [`TextError::TooLong`] and [`TextError::NotUtf8`].
///
/// # Safety
/// `pointer` is NULL or points to a string that ends with NUL and is not changed while the result is used.
pub unsafe fn optional_text<'a>(pointer: *const c_char, most: usize) -> Result<&'a str, TextError> {
    if pointer.is_null() {
        return Ok("");
    }
    // Bounded, so that a missing NUL does not make the scan endless.
    // SAFETY: a string by this function's contract, so each byte up to its NUL is readable.
    let length = unsafe { libc::strnlen(pointer, most + 1) };
    if length > most {
        return Err(TextError::TooLong { most });
    }
    // SAFETY: `strnlen` has just read `length` bytes there.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    std::str::from_utf8(bytes).map_err(|_| TextError::NotUtf8)
}

/// The text at `pointer`, as in [`optional_text`].
///
/// # Errors
/// Those of [`optional_text`], and [`TextError::Missing`] for NULL and an empty text.
///
/// # Safety
/// As for [`optional_text`].
pub unsafe fn required_text<'a>(pointer: *const c_char, most: usize) -> Result<&'a str, TextError> {
    // SAFETY: this function's contract is that of `optional_text`.
    match unsafe { optional_text(pointer, most) }? {
        "" => Err(TextError::Missing),
        text => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn take(text: &[u8]) -> Result<String, TextError> {
        let text = CString::new(text).unwrap();
        // SAFETY: `text` is a C string.
        unsafe { required_text(text.as_ptr(), 128) }.map(str::to_owned)
    }

    #[test]
    fn texts_are_copied_and_bad_ones_refused() {
        assert_eq!(take(b"sobel").unwrap(), "sobel");
        assert_eq!(take(&[b'x'; 128]).unwrap().len(), 128);
        assert_eq!(take(&[b'x'; 129]), Err(TextError::TooLong { most: 128 }));
        assert_eq!(take(b"\xff"), Err(TextError::NotUtf8));
        assert_eq!(take(b""), Err(TextError::Missing));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { optional_text(std::ptr::null(), 128) }, Ok(""));
    }
}

//! The protocol of every `clGet*Info`: a size query, a value, or `CL_INVALID_VALUE` if the room is too small.

use crate::cl;
use crate::memory;
use fpga_client::ClError;
use std::ffi::c_void;

/// The application's destination of an answer.
pub struct Answer {
    room: usize,
    value: *mut c_void,
    size: *mut usize,
}

/// Types whose memory representation is the answer.
///
/// # Safety
/// The type has no padding, and any bytes of it may be read.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer or a pointer, without padding.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: as above.
unsafe impl Plain for isize {}
// SAFETY: as above.
unsafe impl Plain for *mut c_void {}

impl Answer {
    /// # Safety
    /// `value` is NULL or writable for `room` bytes, and `size` is NULL or writable, both as long as the answer
    /// lives.
    pub unsafe fn new(room: usize, value: *mut c_void, size: *mut usize) -> Self {
        Self { room, value, size }
    }

    /// Answers with `bytes`.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), ClError> {
        if !self.value.is_null() {
            if self.room < bytes.len() {
                return Err(ClError(cl::CL_INVALID_VALUE));
            }
            // SAFETY: `value` is writable for `room` bytes by the contract of `new`, and doesn't overlap memory of
            // this library.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.value.cast(), bytes.len()) };
        }
        // SAFETY: `size` is NULL or writable by the contract of `new`.
        unsafe { memory::write(self.size, bytes.len()) };
        Ok(())
    }

    /// Answers with an array of values.
    pub fn values<T: Plain>(self, values: &[T]) -> Result<(), ClError> {
        // SAFETY: `T` is plain, so all of its bytes are initialised.
        self.bytes(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
    }

    /// Answers with one value.
    pub fn value<T: Plain>(self, value: T) -> Result<(), ClError> {
        self.values(&[value])
    }

    /// Answers with a `cl_bool`.
    pub fn boolean(self, value: bool) -> Result<(), ClError> {
        self.value(cl::cl_uint::from(value))
    }

    /// Answers with a number as a `cl_uint`.
    pub fn count(self, number: usize) -> Result<(), ClError> {
        self.value(memory::count(number)?)
    }

    /// Answers with a string and a terminating NUL.
    pub fn text(self, text: &[u8]) -> Result<(), ClError> {
        let mut bytes = text.to_vec();
        bytes.push(0);
        self.bytes(&bytes)
    }

    /// The room, the value and the size, for CL_PROGRAM_BINARIES, whose value has pointers to the destinations.
    pub fn raw(self) -> (usize, *mut c_void, *mut usize) {
        (self.room, self.value, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn ask(room: &mut [u8], answer: impl FnOnce(Answer) -> Result<(), ClError>) -> Result<usize, ClError> {
        let mut size = 0;
        // SAFETY: the room and the size are writable.
        answer(unsafe { Answer::new(room.len(), room.as_mut_ptr().cast(), &raw mut size) }).map(|()| size)
    }

    #[test]
    fn a_size_query_needs_no_room() {
        let mut size = 0;
        // SAFETY: the value is NULL and the size is writable.
        unsafe { Answer::new(0, ptr::null_mut(), &raw mut size) }.text(b"PoCL").unwrap();
        assert_eq!(size, 5);
    }

    #[test]
    fn too_small_a_room_is_refused_and_left_alone() {
        let mut room = [9_u8; 3];
        assert_eq!(ask(&mut room, |answer| answer.value(1_u32)), Err(ClError(cl::CL_INVALID_VALUE)));
        assert_eq!(room, [9; 3]);
    }

    #[test]
    fn a_value_fills_its_own_size_only() {
        let mut room = [9_u8; 6];
        assert_eq!(ask(&mut room, |answer| answer.value(1_u32)), Ok(4));
        assert_eq!(room, [1, 0, 0, 0, 9, 9]);
        let mut room = [9_u8; 6];
        assert_eq!(ask(&mut room, |answer| answer.text(b"abc")), Ok(4));
        assert_eq!(room, [b'a', b'b', b'c', 0, 9, 9]);
        assert_eq!(ask(&mut room, |answer| answer.values::<u64>(&[])), Ok(0));
    }
}

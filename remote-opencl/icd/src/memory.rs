//! The application's memory: reading arrays and strings, writing results.
//!
//! Every function takes the pointer as C gave it and answers a null or an impossible length with `CL_INVALID_VALUE`.

use crate::cl;
use fpga_client::ClError;
use std::ffi::{CStr, c_char};

/// An array of the application.
///
/// # Safety
/// `start` is NULL or points to `count` readable values that don't change before the slice is gone.
pub unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T], ClError> {
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>()).ok_or(ClError(cl::CL_INVALID_VALUE))?;
    if start.is_null() || !start.is_aligned() || isize::try_from(bytes).is_err() {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    // SAFETY: not null, aligned, not larger than any object, readable by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// A NUL-terminated string of the application.
///
/// # Safety
/// `start` is NULL or points to a NUL-terminated string that doesn't change before the reference is gone.
pub unsafe fn text<'a>(start: *const c_char) -> Option<&'a CStr> {
    if start.is_null() {
        return None;
    }
    // SAFETY: not null, terminated by this function's contract.
    Some(unsafe { CStr::from_ptr(start) })
}

/// Writes a result unless the application did not ask for it.
///
/// # Safety
/// `target` is NULL or writable.
pub unsafe fn write<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: writable by this function's contract; alignment is not taken for granted.
        unsafe { target.write_unaligned(value) };
    }
}

/// The list protocol of `clGet*IDs`: up to `capacity` values into `target`, how many there are into `count`.
///
/// # Safety
/// `target` is NULL or writable for `capacity` values, `count` NULL or writable.
pub unsafe fn write_list<T: Copy>(
    values: &[T],
    capacity: cl::cl_uint,
    target: *mut T,
    count: *mut cl::cl_uint,
) -> Result<(), ClError> {
    if (target.is_null() && count.is_null()) || (!target.is_null() && capacity == 0) {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    if !target.is_null() {
        for (index, value) in values.iter().take(capacity as usize).enumerate() {
            // SAFETY: fewer than `capacity`, which the caller says there is room for.
            unsafe { target.add(index).write_unaligned(*value) };
        }
    }
    let total = self::count(values.len())?;
    // SAFETY: NULL or writable by this function's contract.
    unsafe { write(count, total) };
    Ok(())
}

/// A length as the standard counts, in a `cl_uint`.
pub fn count(length: usize) -> Result<cl::cl_uint, ClError> {
    cl::cl_uint::try_from(length).map_err(|_| ClError(cl::CL_OUT_OF_HOST_MEMORY))
}

/// A list of pairs that ends with a zero key, as the properties of contexts and queues are.
///
/// # Safety
/// `start` is NULL or points to such a list.
pub unsafe fn pairs<T: Copy + Default + PartialEq>(start: *const T) -> Vec<(T, T)> {
    let mut pairs = Vec::new();
    let mut at = start;
    while !at.is_null() {
        // SAFETY: inside the list, which goes on at least until its zero.
        let key = unsafe { at.read_unaligned() };
        if key == T::default() {
            break;
        }
        // SAFETY: a key that is not zero is followed by its value and another key.
        unsafe {
            pairs.push((key, at.add(1).read_unaligned()));
            at = at.add(2);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn a_null_array_is_fine_only_when_empty() {
        // SAFETY: NULL or nothing to read.
        unsafe {
            assert_eq!(array::<u32>(ptr::null(), 0), Ok(&[][..]));
            assert_eq!(array::<u32>(ptr::null(), 1), Err(ClError(cl::CL_INVALID_VALUE)));
            assert_eq!(array::<u64>(ptr::dangling(), usize::MAX), Err(ClError(cl::CL_INVALID_VALUE)));
        }
    }

    #[test]
    fn a_list_is_cut_to_its_capacity_and_counted_whole() {
        let mut room = [0_u32; 2];
        let mut count = 0;
        // SAFETY: the room is as large as said.
        unsafe {
            write_list(&[1_u32, 2, 3], 2, room.as_mut_ptr(), &raw mut count).unwrap();
            assert_eq!((room, count), ([1, 2], 3));
            assert!(write_list(&[1_u32], 0, room.as_mut_ptr(), ptr::null_mut()).is_err());
            assert!(write_list(&[1_u32], 0, ptr::null_mut(), ptr::null_mut()).is_err());
            write_list(&[1_u32], 7, ptr::null_mut(), &raw mut count).unwrap();
        }
        assert_eq!(count, 1);
    }

    #[test]
    fn pairs_end_at_the_zero_key() {
        let list = [5_isize, 6, 7, 0, 0];
        // SAFETY: the list ends with a zero key.
        unsafe {
            assert_eq!(pairs(list.as_ptr()), [(5, 6), (7, 0)]);
            assert_eq!(pairs::<isize>(ptr::null()), []);
        }
    }
}

//! Access to the application's memory: reads of arrays and strings, and writes of results.
//!
//! Functions take pointers as C passed them. A NULL array with entries, or an impossible length, is
//! `CL_INVALID_VALUE`.

use crate::cl;
use fpga_client::ClError;
use std::ffi::{CStr, c_char};

/// The array of `count` values at `start`.
///
/// # Safety
/// `start` is NULL or points to `count` readable values that don't change while the slice exists.
pub unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T], ClError> {
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>()).ok_or(ClError(cl::CL_INVALID_VALUE))?;
    if start.is_null() || !start.is_aligned() || isize::try_from(bytes).is_err() {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    // SAFETY: `start` is not NULL, aligned, and readable by this function's contract; the size is at most
    // `isize::MAX`.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// The NUL-terminated string at `start`; `None` for NULL.
///
/// # Safety
/// `start` is NULL or points to a NUL-terminated string that doesn't change while the reference exists.
pub unsafe fn text<'a>(start: *const c_char) -> Option<&'a CStr> {
    if start.is_null() {
        return None;
    }
    // SAFETY: `start` is not NULL, and the string is terminated by this function's contract.
    Some(unsafe { CStr::from_ptr(start) })
}

/// Writes a result, unless `target` is NULL.
///
/// # Safety
/// `target` is NULL or writable.
pub unsafe fn write<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: `target` is writable by this function's contract; it need not be aligned.
        unsafe { target.write_unaligned(value) };
    }
}

/// Writes up to `capacity` values to `target` and the number of all values to `count`, as `clGet*IDs` does.
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
            // SAFETY: `index` is less than `capacity`, for which `target` has room by this function's contract.
            unsafe { target.add(index).write_unaligned(*value) };
        }
    }
    let total = self::count(values.len())?;
    // SAFETY: `count` is NULL or writable by this function's contract.
    unsafe { write(count, total) };
    Ok(())
}

/// A number as a `cl_uint`.
pub fn count(length: usize) -> Result<cl::cl_uint, ClError> {
    cl::cl_uint::try_from(length).map_err(|_| ClError(cl::CL_OUT_OF_HOST_MEMORY))
}

/// The pairs of a list that ends with a zero key, such as the properties of contexts and queues.
///
/// # Safety
/// `start` is NULL or points to such a list.
pub unsafe fn pairs<T: Copy + Default + PartialEq>(start: *const T) -> Vec<(T, T)> {
    let mut pairs = Vec::new();
    let mut at = start;
    while !at.is_null() {
        // SAFETY: `at` is inside the list, which goes on at least until its zero key.
        let key = unsafe { at.read_unaligned() };
        if key == T::default() {
            break;
        }
        // SAFETY: a key that is not zero is followed by its value and another key, by this function's contract.
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
        // SAFETY: the pointer is NULL, or nothing is read.
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
        // SAFETY: the pointers are writable for the given capacities, or NULL.
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

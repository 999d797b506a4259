//! Binaries of programs, in lists of pointers as the application passes them.

use crate::cl;
use crate::handle::Handle;
use crate::info::Answer;
use crate::memory;
use crate::objects::Program;
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_uchar;
use std::sync::Arc;

/// A device and the binary given for it.
pub(super) type Given<'a> = (Arc<client::Device>, &'a [u8]);

/// The binaries given for devices. Sets each entry of `binary_status`: CL_INVALID_VALUE for a binary that is NULL or
/// empty.
///
/// # Safety
/// `lengths`, `binaries` and `binary_status` are NULL or have an entry for each device; each binary is NULL or has
/// as many bytes as its entry in `lengths`.
pub(super) unsafe fn given<'a>(
    devices: &[Handle<Device>],
    lengths: *const usize,
    binaries: *mut *const c_uchar,
    binary_status: *mut cl::cl_int,
) -> Result<Vec<Given<'a>>, ClError> {
    // SAFETY: the lists are NULL or have an entry for each device by this function's contract.
    let (lengths, binaries) = unsafe {
        (memory::array(lengths, devices.len())?, memory::array(binaries.cast_const(), devices.len())?)
    };
    let mut given = Vec::with_capacity(devices.len());
    let mut invalid = false;
    for (index, device) in devices.iter().enumerate() {
        // CL_INVALID_VALUE if lengths[i] is zero or if binaries[i] is NULL, with CL_INVALID_VALUE in
        // binary_status[i].
        // SAFETY: the binary is NULL or as long as its entry in `lengths` by this function's contract.
        let bytes = unsafe { memory::array(binaries[index], lengths[index]) }.unwrap_or_default();
        if bytes.is_empty() {
            invalid = true;
        }
        if !binary_status.is_null() {
            let status = if bytes.is_empty() { cl::CL_INVALID_VALUE } else { cl::CL_SUCCESS };
            // SAFETY: the list has an entry for each device by this function's contract.
            unsafe { memory::write(binary_status.add(index), status) };
        }
        given.push((device.client()?, bytes));
    }
    if invalid { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(given) }
}

/// The binary of each device; empty if there is none yet.
pub(super) fn of(program: &Program) -> Vec<Vec<u8>> {
    let mut binaries: Vec<Vec<u8>> =
        program.client.binaries().map(|all| all.iter().map(|one| one.to_vec()).collect()).unwrap_or_default();
    binaries.resize(program.devices.len(), Vec::new());
    binaries
}

/// Answers CL_PROGRAM_BINARIES, whose value is a list of pointers to which the binaries are copied.
///
/// # Safety
/// The answer's value is NULL or has a pointer for each device, which is NULL or points to room for the device's
/// binary.
pub(super) unsafe fn copy(program: &Program, answer: Answer) -> Result<(), ClError> {
    let binaries = of(program);
    let (room, value, size) = answer.raw();
    let needed = size_of::<*mut u8>() * binaries.len();
    if !value.is_null() {
        if room < needed {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        for (index, binary) in binaries.iter().enumerate() {
            // SAFETY: the value has a pointer for each device by this function's contract.
            let target = unsafe { value.cast::<*mut u8>().add(index).read_unaligned() };
            if !target.is_null() {
                // SAFETY: `target` has room for the binary by this function's contract.
                unsafe { std::ptr::copy_nonoverlapping(binary.as_ptr(), target, binary.len()) };
            }
        }
    }
    // SAFETY: `size` is NULL or writable by the contract of `Answer::new`.
    unsafe { memory::write(size, needed) };
    Ok(())
}

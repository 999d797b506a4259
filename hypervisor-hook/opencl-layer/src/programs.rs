//! Programs. A binary is a bitstream, and creating a program from it loads the board.

use crate::bitstreams::digest_of;
use crate::cl;
use crate::config::Sources;
use crate::state::guard;
use crate::table::{replace, target};
use fpga_core::bitstream::Digest;
use std::ffi::{CStr, c_char, c_void};
use std::time::Instant;

type Notify = Option<unsafe extern "C" fn(cl::cl_program, *mut c_void)>;

/// Puts this module's functions into `table`.
pub fn insert(table: &mut cl::cl_icd_dispatch) {
    replace!(table:
        clCreateProgramWithSource clCreateProgramWithBinary clCreateProgramWithIL
        clCreateProgramWithBuiltInKernels clLinkProgram clBuildProgram
    );
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl::cl_context,
    num_devices: cl::cl_uint,
    device_list: *const cl::cl_device_id,
    lengths: *const usize,
    binaries: *mut *const u8,
    binary_status: *mut cl::cl_int,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let Some(call) = target().clCreateProgramWithBinary else { return std::ptr::null_mut() };
    let begin = Instant::now();
    // SAFETY: the application's arguments, passed on unchanged.
    let program =
        unsafe { call(context, num_devices, device_list, lengths, binaries, binary_status, errcode_ret) };
    let took = begin.elapsed();
    if program.is_null() {
        return program;
    }
    guard(|layer| {
        layer.bitstreams.made_otherwise(program);
        // SAFETY: the runtime accepted the arrays, so they have one entry for each device.
        let mut digests: Vec<_> = unsafe { binary_digests(num_devices, lengths, binaries) };
        digests.sort_unstable();
        digests.dedup();
        let share = took / u32::try_from(digests.len()).unwrap_or(u32::MAX).max(1);
        for digest in digests {
            let bitstream = layer.bitstreams.identify(digest);
            layer.bitstreams.made_of(program, &bitstream);
            layer.reports.reconfigured(&bitstream, share);
        }
    });
    program
}

/// # Safety
/// Each array is NULL or has `count` entries, and each binary is NULL or has its length.
unsafe fn binary_digests(count: cl::cl_uint, lengths: *const usize, binaries: *mut *const u8) -> Vec<Digest> {
    if lengths.is_null() || binaries.is_null() {
        return Vec::new();
    }
    let digests = (0..count as usize).filter_map(|index| {
        // SAFETY: by this function's contract.
        let (length, bytes) = unsafe { (*lengths.add(index), *binaries.add(index)) };
        if bytes.is_null() || length == 0 {
            return None;
        }
        // SAFETY: by this function's contract.
        Some(digest_of([unsafe { std::slice::from_raw_parts(bytes, length) }]))
    });
    digests.collect()
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateProgramWithSource(
    context: cl::cl_context,
    count: cl::cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let Some(call) = target().clCreateProgramWithSource else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    let program = unsafe { call(context, count, strings, lengths, errcode_ret) };
    if !program.is_null() {
        guard(|layer| {
            // SAFETY: the runtime accepted the strings, so they are as the standard requires.
            let digest = unsafe { source_digest(count, strings, lengths) };
            layer.bitstreams.made_of_source(program, digest);
        });
    }
    program
}

/// # Safety
/// As the standard requires for clCreateProgramWithSource: `count` strings, each with its length, or NUL-terminated
/// where the length is 0 or `lengths` is NULL.
unsafe fn source_digest(count: cl::cl_uint, strings: *mut *const c_char, lengths: *const usize) -> Digest {
    let parts = (0..count as usize).filter_map(|index| {
        // SAFETY: by this function's contract.
        let text = unsafe { *strings.add(index) };
        // SAFETY: by this function's contract.
        let length = if lengths.is_null() { 0 } else { unsafe { *lengths.add(index) } };
        if text.is_null() {
            return None;
        }
        // SAFETY: by this function's contract.
        Some(unsafe {
            if length == 0 {
                CStr::from_ptr(text).to_bytes()
            } else {
                std::slice::from_raw_parts(text.cast::<u8>(), length)
            }
        })
    });
    digest_of(parts)
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clBuildProgram(
    program: cl::cl_program,
    num_devices: cl::cl_uint,
    device_list: *const cl::cl_device_id,
    options: *const c_char,
    notify: Notify,
    data: *mut c_void,
) -> cl::cl_int {
    let Some(call) = target().clBuildProgram else { return cl::CL_INVALID_OPERATION };
    let begin = Instant::now();
    // SAFETY: the application's arguments, passed on unchanged.
    let code = unsafe { call(program, num_devices, device_list, options, notify, data) };
    let took = begin.elapsed();
    if code == cl::CL_SUCCESS {
        guard(|layer| {
            // SAFETY: the runtime accepted the options, so they are NULL or a string.
            let options = if options.is_null() { b"" } else { unsafe { CStr::from_ptr(options) }.to_bytes() };
            let built = layer.bitstreams.built(program, options);
            // With a callback the build goes on after this call returns, so its duration is unknown.
            if let Some(bitstream) = built
                && layer.sources == Sources::AsBitstreams
                && notify.is_none()
            {
                layer.reports.reconfigured(&bitstream, took);
            }
        });
    }
    code
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateProgramWithIL(
    context: cl::cl_context,
    il: *const c_void,
    length: usize,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let Some(call) = target().clCreateProgramWithIL else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    made_otherwise(unsafe { call(context, il, length, errcode_ret) })
}

#[allow(non_snake_case, reason = "the standard's names")]
unsafe extern "C" fn clCreateProgramWithBuiltInKernels(
    context: cl::cl_context,
    num_devices: cl::cl_uint,
    device_list: *const cl::cl_device_id,
    names: *const c_char,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let Some(call) = target().clCreateProgramWithBuiltInKernels else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    made_otherwise(unsafe { call(context, num_devices, device_list, names, errcode_ret) })
}

#[allow(non_snake_case, reason = "the standard's names")]
#[allow(clippy::too_many_arguments, reason = "the standard's signature")]
unsafe extern "C" fn clLinkProgram(
    context: cl::cl_context,
    num_devices: cl::cl_uint,
    device_list: *const cl::cl_device_id,
    options: *const c_char,
    count: cl::cl_uint,
    programs: *const cl::cl_program,
    notify: Notify,
    data: *mut c_void,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let Some(call) = target().clLinkProgram else { return std::ptr::null_mut() };
    // SAFETY: the application's arguments, passed on unchanged.
    made_otherwise(unsafe {
        call(context, num_devices, device_list, options, count, programs, notify, data, errcode_ret)
    })
}

/// Removes what is known of an earlier program with this address; nothing is known of the new one.
fn made_otherwise(program: cl::cl_program) -> cl::cl_program {
    if !program.is_null() {
        guard(|layer| layer.bitstreams.made_otherwise(program));
    }
    program
}

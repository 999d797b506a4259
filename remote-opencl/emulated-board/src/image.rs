//! The image on the board: the programs that belong to it, the calls that load one, and the launches that are
//! refused.
#![allow(non_snake_case, reason = "the standard's names")]

use crate::cl;
use crate::controls::Controls;
use crate::endless;
use crate::pocl::theirs;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

static BOARD: Mutex<Option<Board>> = Mutex::new(None);

#[derive(Default)]
struct Board {
    /// The loaded image, as the hash of its bytes.
    image: Option<u64>,
    /// The images of programs that were created from binaries, by the program's address.
    images: HashMap<usize, u64>,
}

fn with_board<T>(act: impl FnOnce(&mut Board) -> T) -> T {
    let mut board: MutexGuard<'_, Option<Board>> = BOARD.lock().unwrap_or_else(PoisonError::into_inner);
    act(board.get_or_insert_default())
}

/// Puts the functions of this module into PoCL's table.
pub fn insert(table: &mut cl::cl_icd_dispatch) {
    table.clCreateProgramWithBinary = Some(clCreateProgramWithBinary);
    table.clCreateProgramWithSource = Some(clCreateProgramWithSource);
    table.clEnqueueMarkerWithWaitList = Some(clEnqueueMarkerWithWaitList);
    table.clEnqueueNDRangeKernel = Some(clEnqueueNDRangeKernel);
    table.clEnqueueReadBuffer = Some(clEnqueueReadBuffer);
    table.clFlush = Some(clFlush);
    table.clGetDeviceIDs = Some(clGetDeviceIDs);
}

unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl::cl_context,
    num_devices: cl::cl_uint,
    device_list: *const cl::cl_device_id,
    lengths: *const usize,
    binaries: *mut *const u8,
    binary_status: *mut cl::cl_int,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let controls = Controls::of_this_process();
    controls.wait();
    let fail = |code| {
        if !errcode_ret.is_null() {
            // SAFETY: the pointer is not null, so the standard requires it to be writable.
            unsafe { errcode_ret.write(code) };
        }
        std::ptr::null_mut()
    };
    if num_devices == 0 || lengths.is_null() || binaries.is_null() {
        return fail(cl::CL_INVALID_VALUE);
    }
    let mut hasher = DefaultHasher::new();
    // SAFETY: the standard requires an entry for each device, with as many bytes.
    hasher.write(unsafe { std::slice::from_raw_parts(*binaries, *lengths) });
    let image = hasher.finish();
    if controls.loads_fail() || controls.is_kept_busy(image) {
        return fail(cl::CL_DEVICE_NOT_AVAILABLE);
    }
    let Some(call) = theirs().and_then(|theirs| theirs.clCreateProgramWithBinary) else {
        return fail(cl::CL_INVALID_OPERATION);
    };
    // SAFETY: the arguments are the caller's, unchanged.
    let program =
        unsafe { call(context, num_devices, device_list, lengths, binaries, binary_status, errcode_ret) };
    if program.is_null() {
        return program;
    }
    with_board(|board| {
        board.images.insert(program as usize, image);
        let is_another = match controls.shared_image() {
            Some(_) => controls.load_shared(image),
            None => board.image.replace(image) != Some(image),
        };
        if is_another {
            controls.count_load();
        }
    });
    program
}

unsafe extern "C" fn clCreateProgramWithSource(
    context: cl::cl_context,
    count: cl::cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    errcode_ret: *mut cl::cl_int,
) -> cl::cl_program {
    let call = theirs().and_then(|theirs| theirs.clCreateProgramWithSource);
    // SAFETY: the arguments are the caller's, unchanged.
    let program = call
        .map_or(std::ptr::null_mut(), |call| unsafe { call(context, count, strings, lengths, errcode_ret) });
    // An earlier program, created from a binary, may have had this address.
    with_board(|board| board.images.remove(&(program as usize)));
    program
}

unsafe extern "C" fn clEnqueueNDRangeKernel(
    queue: cl::cl_command_queue,
    kernel: cl::cl_kernel,
    dimensions: cl::cl_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    num_events: cl::cl_uint,
    wait_list: *const cl::cl_event,
    event: *mut cl::cl_event,
) -> cl::cl_int {
    let controls = Controls::of_this_process();
    controls.wait();
    if controls.kernels_fail() {
        return cl::CL_OUT_OF_RESOURCES;
    }
    let Some(theirs) = theirs() else { return cl::CL_INVALID_OPERATION };
    let mut program: cl::cl_program = std::ptr::null_mut();
    if let Some(info) = theirs.clGetKernelInfo {
        let room = (&raw mut program).cast::<c_void>();
        // SAFETY: `room` has room for a handle.
        unsafe {
            info(kernel, cl::CL_KERNEL_PROGRAM, size_of::<cl::cl_program>(), room, std::ptr::null_mut())
        };
    }
    let is_loaded = with_board(|board| {
        let loaded = controls.shared_image().or(board.image);
        board.images.get(&(program as usize)).is_none_or(|image| loaded == Some(*image))
    });
    if !is_loaded {
        controls.count_refused();
        return cl::CL_INVALID_PROGRAM_EXECUTABLE;
    }
    let Some(call) = theirs.clEnqueueNDRangeKernel else { return cl::CL_INVALID_OPERATION };
    // SAFETY: the queue is the caller's.
    unsafe { endless::hold(queue, move || controls.commands_never_end()) };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { call(queue, kernel, dimensions, offset, global, local, num_events, wait_list, event) }
}

unsafe extern "C" fn clEnqueueMarkerWithWaitList(
    queue: cl::cl_command_queue,
    num_events: cl::cl_uint,
    wait_list: *const cl::cl_event,
    event: *mut cl::cl_event,
) -> cl::cl_int {
    let controls = Controls::of_this_process();
    controls.wait();
    let Some(call) = theirs().and_then(|theirs| theirs.clEnqueueMarkerWithWaitList) else {
        return cl::CL_INVALID_OPERATION;
    };
    // SAFETY: the queue is the caller's.
    unsafe { endless::hold(queue, move || controls.markers_wait()) };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { call(queue, num_events, wait_list, event) }
}

unsafe extern "C" fn clEnqueueReadBuffer(
    queue: cl::cl_command_queue,
    buffer: cl::cl_mem,
    blocking: cl::cl_bool,
    offset: usize,
    size: usize,
    to: *mut c_void,
    num_events: cl::cl_uint,
    wait_list: *const cl::cl_event,
    event: *mut cl::cl_event,
) -> cl::cl_int {
    Controls::of_this_process().wait();
    let Some(call) = theirs().and_then(|theirs| theirs.clEnqueueReadBuffer) else {
        return cl::CL_INVALID_OPERATION;
    };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { call(queue, buffer, blocking, offset, size, to, num_events, wait_list, event) }
}

unsafe extern "C" fn clFlush(queue: cl::cl_command_queue) -> cl::cl_int {
    Controls::of_this_process().wait();
    let Some(call) = theirs().and_then(|theirs| theirs.clFlush) else { return cl::CL_INVALID_OPERATION };
    // SAFETY: the argument is the caller's, unchanged.
    unsafe { call(queue) }
}

unsafe extern "C" fn clGetDeviceIDs(
    platform: cl::cl_platform_id,
    kind: cl::cl_device_type,
    num_entries: cl::cl_uint,
    devices: *mut cl::cl_device_id,
    num_devices: *mut cl::cl_uint,
) -> cl::cl_int {
    if Controls::of_this_process().is_unplugged() {
        return cl::CL_DEVICE_NOT_FOUND;
    }
    let Some(call) = theirs().and_then(|theirs| theirs.clGetDeviceIDs) else {
        return cl::CL_INVALID_OPERATION;
    };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { call(platform, kind, num_entries, devices, num_devices) }
}

#[cfg(test)]
mod tests;

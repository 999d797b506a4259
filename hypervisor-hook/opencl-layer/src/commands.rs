//! Commands that keep a device busy. Each gets an event, the application's or the layer's own, which is watched.

use crate::bitstreams::Bitstream;
use crate::cl;
use crate::in_flight::{Kind, Reference};
use crate::state::{Layer, guard};
use crate::table::{replace, target};
use crate::watch::watch;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

/// Passes a call on with an event to watch: the application's if it wants one, otherwise the layer's own.
///
/// `call` gets the pointer for the event; it returns its result and whether the command was enqueued.
fn watched<R>(
    queue: cl::cl_command_queue,
    event: *mut cl::cl_event,
    what: impl FnOnce(&'static Layer) -> (Kind, Arc<Bitstream>),
    call: impl FnOnce(*mut cl::cl_event) -> (R, bool),
) -> R {
    if guard(|_| ()).is_none() {
        return call(event).0;
    }
    let mut own: cl::cl_event = std::ptr::null_mut();
    let (place, reference) =
        if event.is_null() { (&raw mut own, Reference::Layer) } else { (event, Reference::Application) };
    let enqueued = Instant::now();
    let (result, is_enqueued) = call(place);
    if is_enqueued {
        // SAFETY: the command was enqueued, so the call has written its event there.
        let event = unsafe { *place };
        if !event.is_null() {
            // SAFETY: the event is fresh, and its queue lives as long as the event.
            guard(|layer| unsafe { watch(layer, queue, event, what(layer), enqueued, reference) });
        }
    }
    result
}

fn transfer(layer: &Layer) -> (Kind, Arc<Bitstream>) {
    (Kind::Transfer, layer.bitstreams.last())
}

/// The kind and the bitstream of a command that runs `kernel`.
///
/// # Safety
/// `kernel` is live.
unsafe fn running(layer: &Layer, kernel: cl::cl_kernel) -> (Kind, Arc<Bitstream>) {
    let mut program: cl::cl_program = std::ptr::null_mut();
    if let Some(info) = target().clGetKernelInfo {
        let room = (&raw mut program).cast();
        // If the query fails, the program stays null, which counts as unknown.
        // SAFETY: the kernel is live by this function's contract, and there is room for the value.
        unsafe { info(kernel, cl::CL_KERNEL_PROGRAM, size_of_val(&program), room, std::ptr::null_mut()) };
    }
    (Kind::Kernel, layer.bitstreams.used(program))
}

/// Defines the functions `name(queue, …, events to wait for, event)`, each with the kind and the bitstream of its
/// command.
macro_rules! commands {
    ($($name:ident($($arg:ident: $type:ty),*) = |$layer:ident| $what:expr;)*) => {
        $(
            #[allow(non_snake_case, reason = "the standard's names")]
            #[allow(clippy::too_many_arguments, reason = "the standard's signatures")]
            unsafe extern "C" fn $name(
                queue: cl::cl_command_queue,
                $($arg: $type,)*
                wait_count: cl::cl_uint,
                wait_list: *const cl::cl_event,
                event: *mut cl::cl_event,
            ) -> cl::cl_int {
                let Some(call) = target().$name else { return cl::CL_INVALID_OPERATION };
                watched(queue, event, |$layer| $what, |event| {
                    // SAFETY: the application's arguments, unchanged except for where the event goes.
                    let code = unsafe { call(queue, $($arg,)* wait_count, wait_list, event) };
                    (code, code == cl::CL_SUCCESS)
                })
            }
        )*

        /// Puts this module's functions into `table`.
        pub fn insert(table: &mut cl::cl_icd_dispatch) {
            replace!(table: $($name)* clEnqueueMapBuffer clEnqueueMapImage);
        }
    };
}

commands! {
    // SAFETY: the runtime accepted the kernel, so it is live.
    clEnqueueNDRangeKernel(kernel: cl::cl_kernel, dimensions: cl::cl_uint, offset: *const usize, global: *const usize, local: *const usize) = |layer| unsafe { running(layer, kernel) };
    // SAFETY: the runtime accepted the kernel, so it is live.
    clEnqueueTask(kernel: cl::cl_kernel) = |layer| unsafe { running(layer, kernel) };
    clEnqueueReadBuffer(buffer: cl::cl_mem, blocking: cl::cl_bool, offset: usize, size: usize, to: *mut c_void) = |layer| transfer(layer);
    clEnqueueWriteBuffer(buffer: cl::cl_mem, blocking: cl::cl_bool, offset: usize, size: usize, from: *const c_void) = |layer| transfer(layer);
    clEnqueueCopyBuffer(from: cl::cl_mem, to: cl::cl_mem, from_offset: usize, to_offset: usize, size: usize) = |layer| transfer(layer);
    clEnqueueReadBufferRect(buffer: cl::cl_mem, blocking: cl::cl_bool, origin: *const usize, host_origin: *const usize, region: *const usize, row: usize, slice: usize, host_row: usize, host_slice: usize, to: *mut c_void) = |layer| transfer(layer);
    clEnqueueWriteBufferRect(buffer: cl::cl_mem, blocking: cl::cl_bool, origin: *const usize, host_origin: *const usize, region: *const usize, row: usize, slice: usize, host_row: usize, host_slice: usize, from: *const c_void) = |layer| transfer(layer);
    clEnqueueCopyBufferRect(from: cl::cl_mem, to: cl::cl_mem, from_origin: *const usize, to_origin: *const usize, region: *const usize, from_row: usize, from_slice: usize, to_row: usize, to_slice: usize) = |layer| transfer(layer);
    clEnqueueFillBuffer(buffer: cl::cl_mem, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize) = |layer| transfer(layer);
    clEnqueueReadImage(image: cl::cl_mem, blocking: cl::cl_bool, origin: *const usize, region: *const usize, row: usize, slice: usize, to: *mut c_void) = |layer| transfer(layer);
    clEnqueueWriteImage(image: cl::cl_mem, blocking: cl::cl_bool, origin: *const usize, region: *const usize, row: usize, slice: usize, from: *const c_void) = |layer| transfer(layer);
    clEnqueueCopyImage(from: cl::cl_mem, to: cl::cl_mem, from_origin: *const usize, to_origin: *const usize, region: *const usize) = |layer| transfer(layer);
    clEnqueueCopyImageToBuffer(from: cl::cl_mem, to: cl::cl_mem, origin: *const usize, region: *const usize, offset: usize) = |layer| transfer(layer);
    clEnqueueCopyBufferToImage(from: cl::cl_mem, to: cl::cl_mem, offset: usize, origin: *const usize, region: *const usize) = |layer| transfer(layer);
    clEnqueueFillImage(image: cl::cl_mem, color: *const c_void, origin: *const usize, region: *const usize) = |layer| transfer(layer);
    clEnqueueUnmapMemObject(object: cl::cl_mem, pointer: *mut c_void) = |layer| transfer(layer);
    clEnqueueMigrateMemObjects(count: cl::cl_uint, objects: *const cl::cl_mem, flags: cl::cl_mem_migration_flags) = |layer| transfer(layer);
    clEnqueueSVMMemcpy(blocking: cl::cl_bool, to: *mut c_void, from: *const c_void, size: usize) = |layer| transfer(layer);
    clEnqueueSVMMemFill(to: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize) = |layer| transfer(layer);
    clEnqueueSVMMap(blocking: cl::cl_bool, flags: cl::cl_map_flags, pointer: *mut c_void, size: usize) = |layer| transfer(layer);
    clEnqueueSVMUnmap(pointer: *mut c_void) = |layer| transfer(layer);
    clEnqueueSVMMigrateMem(count: cl::cl_uint, pointers: *mut *const c_void, sizes: *const usize, flags: cl::cl_mem_migration_flags) = |layer| transfer(layer);
}

#[allow(non_snake_case, reason = "the standard's names")]
#[allow(clippy::too_many_arguments, reason = "the standard's signature")]
unsafe extern "C" fn clEnqueueMapBuffer(
    queue: cl::cl_command_queue,
    buffer: cl::cl_mem,
    blocking: cl::cl_bool,
    flags: cl::cl_map_flags,
    offset: usize,
    size: usize,
    wait_count: cl::cl_uint,
    wait_list: *const cl::cl_event,
    event: *mut cl::cl_event,
    errcode_ret: *mut cl::cl_int,
) -> *mut c_void {
    let Some(call) = target().clEnqueueMapBuffer else { return std::ptr::null_mut() };
    watched(queue, event, transfer, |event| {
        // SAFETY: the application's arguments, unchanged except for where the event goes.
        let pointer = unsafe {
            call(queue, buffer, blocking, flags, offset, size, wait_count, wait_list, event, errcode_ret)
        };
        (pointer, !pointer.is_null())
    })
}

#[allow(non_snake_case, reason = "the standard's names")]
#[allow(clippy::too_many_arguments, reason = "the standard's signature")]
unsafe extern "C" fn clEnqueueMapImage(
    queue: cl::cl_command_queue,
    image: cl::cl_mem,
    blocking: cl::cl_bool,
    flags: cl::cl_map_flags,
    origin: *const usize,
    region: *const usize,
    row_pitch: *mut usize,
    slice_pitch: *mut usize,
    wait_count: cl::cl_uint,
    wait_list: *const cl::cl_event,
    event: *mut cl::cl_event,
    errcode_ret: *mut cl::cl_int,
) -> *mut c_void {
    let Some(call) = target().clEnqueueMapImage else { return std::ptr::null_mut() };
    watched(queue, event, transfer, |event| {
        // SAFETY: the application's arguments, unchanged except for where the event goes.
        let pointer = unsafe {
            call(
                queue,
                image,
                blocking,
                flags,
                origin,
                region,
                row_pitch,
                slice_pitch,
                wait_count,
                wait_list,
                event,
                errcode_ret,
            )
        };
        (pointer, !pointer.is_null())
    })
}

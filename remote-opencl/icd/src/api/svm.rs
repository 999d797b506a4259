//! Shared virtual memory, which is not supported, since no address is valid on both sides of a connection and no
//! device claims it. Invalid handles get the standard's errors first.

use crate::api::usm;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::objects::{Kernel, Queue};
use fpga_client::ClError;
use std::ffi::c_void;

/// CL_INVALID_OPERATION if the device associated with command_queue, or the kernel, does not support SVM.
const WITHOUT_SVM: ClError = ClError(cl::CL_INVALID_OPERATION);

type FreeNotify = unsafe extern "C" fn(cl::cl_command_queue, cl::cl_uint, *mut *mut c_void, *mut c_void);

/// Returns NULL: no memory can be allocated.
///
/// # Safety
/// None; the arguments are not used.
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clSVMAlloc(
    _context: cl::cl_context,
    _flags: cl::cl_svm_mem_flags,
    _size: usize,
    _alignment: cl::cl_uint,
) -> *mut c_void {
    std::ptr::null_mut()
}

/// Does nothing, since no memory was allocated.
///
/// # Safety
/// None; the arguments are not used.
#[allow(non_snake_case, reason = "the standard's name")]
pub unsafe extern "C" fn clSVMFree(_context: cl::cl_context, _pointer: *mut c_void) {}

entry_points! {
    fn clEnqueueSVMFree(
        queue: cl::cl_command_queue,
        _count: cl::cl_uint,
        _pointers: *mut *mut c_void,
        _free: Option<FreeNotify>,
        _user_data: *mut c_void,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clEnqueueSVMMemcpy(
        queue: cl::cl_command_queue,
        _blocking: cl::cl_bool,
        _target: *mut c_void,
        _source: *const c_void,
        _size: usize,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clEnqueueSVMMemFill(
        queue: cl::cl_command_queue,
        _pointer: *mut c_void,
        _pattern: *const c_void,
        _pattern_size: usize,
        _size: usize,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clEnqueueSVMMap(
        queue: cl::cl_command_queue,
        _blocking: cl::cl_bool,
        _flags: cl::cl_map_flags,
        _pointer: *mut c_void,
        _size: usize,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clEnqueueSVMUnmap(
        queue: cl::cl_command_queue,
        _pointer: *mut c_void,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clEnqueueSVMMigrateMem(
        queue: cl::cl_command_queue,
        _count: cl::cl_uint,
        _pointers: *mut *const c_void,
        _sizes: *const usize,
        _flags: cl::cl_mem_migration_flags,
        _num_waits: cl::cl_uint,
        _waits: *const cl::cl_event,
        _event: *mut cl::cl_event,
    ) -> status {
        lookup::<Queue>(queue)?;
        Err(WITHOUT_SVM)
    }

    fn clSetKernelArgSVMPointer(
        kernel: cl::cl_kernel,
        _index: cl::cl_uint,
        _value: *const c_void,
    ) -> status {
        lookup::<Kernel>(kernel)?;
        Err(WITHOUT_SVM)
    }

    fn clSetKernelExecInfo(
        kernel: cl::cl_kernel,
        param: cl::cl_kernel_exec_info,
        size: usize,
        value: *const c_void,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        match param {
            cl::CL_KERNEL_EXEC_INFO_SVM_PTRS | cl::CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM => Err(WITHOUT_SVM),
            // SAFETY: the caller's value is NULL or has `size` bytes.
            _ => unsafe { usm::set_exec_info(&kernel, param, size, value) },
        }
    }
}

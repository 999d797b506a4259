//! Queries of a kernel's sub-groups, which depend on a work-group size that only the application knows.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::info::Answer;
use crate::memory;
use crate::objects::Kernel;
use fpga_client::ClError;
use std::ffi::c_void;

/// Greatest size of an answer and of an input, in bytes.
const MAX_BYTES: usize = 3 * size_of::<usize>();

entry_points! {
    fn clGetKernelSubGroupInfo(
        kernel: cl::cl_kernel,
        device: cl::cl_device_id,
        param: cl::cl_kernel_sub_group_info,
        input_size: usize,
        input: *const c_void,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        let device = super::kernel::only_or_named(&kernel.program.devices, device)?;
        // CL_INVALID_OPERATION if device does not support sub-groups.
        if device.number(cl::CL_DEVICE_MAX_NUM_SUB_GROUPS) == 0 || !device.claims_3() {
            return Err(ClError(cl::CL_INVALID_OPERATION));
        }
        let sizes = match param {
            cl::CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE | cl::CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE => {
                // CL_INVALID_VALUE if the input is NULL or isn't one to three sizes.
                if input_size == 0 || input_size > MAX_BYTES || !input_size.is_multiple_of(size_of::<usize>()) {
                    return Err(ClError(cl::CL_INVALID_VALUE));
                }
                // SAFETY: the caller's input has `input_size` bytes.
                unsafe { memory::array(input.cast::<usize>(), input_size / size_of::<usize>())? }
            }
            cl::CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT => {
                if input_size != size_of::<usize>() {
                    return Err(ClError(cl::CL_INVALID_VALUE));
                }
                // SAFETY: as above.
                unsafe { memory::array(input.cast::<usize>(), 1)? }
            }
            cl::CL_KERNEL_MAX_NUM_SUB_GROUPS
            | cl::CL_KERNEL_COMPILE_NUM_SUB_GROUPS
            | cl::CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL => &[],
            _ => return Err(ClError(cl::CL_INVALID_VALUE)),
        };
        let wanted = u32::try_from(room.min(MAX_BYTES)).unwrap_or(0);
        let bytes = kernel.client.sub_group_info(&device.client()?, param, sizes, wanted)?;
        // SAFETY: the caller's value has room for `room` bytes.
        unsafe { Answer::new(room, value, size) }.bytes(&bytes)
    }
}

/// The same function by its name as an extension.
pub use self::clGetKernelSubGroupInfo as clGetKernelSubGroupInfoKHR;

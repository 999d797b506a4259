//! Kernels and their arguments.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{DeviceQueue, Kernel, MemObject, Memory, Program, Sampler};
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::{ArgKind, ArgValue, ClError};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

entry_points! {
    fn clCreateKernel(program: cl::cl_program, name: *const c_char) -> pointer {
        let program = lookup::<Program>(program)?;
        // SAFETY: the caller's string ends with NUL.
        let name = unsafe { memory::text(name) }.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        let name = name.to_str().map_err(|_| ClError(cl::CL_INVALID_KERNEL_NAME))?;
        let kernel = client::Kernel::new(&program.client, name)?;
        Ok(Kernel::new(kernel, &program).as_ptr())
    }

    fn clCreateKernelsInProgram(
        program: cl::cl_program,
        capacity: cl::cl_uint,
        kernels: *mut cl::cl_kernel,
        number: *mut cl::cl_uint,
    ) -> status {
        let program = lookup::<Program>(program)?;
        let infos = program.client.kernel_infos().ok_or(ClError(cl::CL_INVALID_PROGRAM_EXECUTABLE))?;
        if !kernels.is_null() {
            // CL_INVALID_VALUE if kernels is not NULL and num_kernels is less than the number of kernels in program.
            if (capacity as usize) < infos.len() {
                return Err(ClError(cl::CL_INVALID_VALUE));
            }
            let made = |info: &Arc<client::KernelInfo>| client::Kernel::new(&program.client, &info.name);
            let made = infos.iter().map(made).collect::<Result<Vec<_>, _>>()?;
            for (index, kernel) in made.into_iter().enumerate() {
                // SAFETY: the caller's list has room for `capacity` kernels, which is at least the number of kernels.
                unsafe { memory::write(kernels.add(index), Kernel::new(kernel, &program).as_ptr()) };
            }
        }
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { memory::write(number, memory::count(infos.len())?) };
        Ok(())
    }

    fn clCloneKernel(kernel: cl::cl_kernel) -> pointer {
        let kernel = lookup::<Kernel>(kernel)?;
        Ok(Kernel::new(kernel.client.duplicate()?, &kernel.program).as_ptr())
    }

    fn clRetainKernel(kernel: cl::cl_kernel) -> status {
        retain::<Kernel>(kernel)
    }

    fn clReleaseKernel(kernel: cl::cl_kernel) -> status {
        release::<Kernel>(kernel)
    }

    fn clSetKernelArg(
        kernel: cl::cl_kernel,
        index: cl::cl_uint,
        size: usize,
        value: *const c_void,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        // SAFETY: the caller's value is NULL or has `size` bytes.
        let value = unsafe { argument(kernel.client.arg_kind(index)?, size, value)? };
        kernel.client.set_arg(index, value)
    }

    fn clGetKernelInfo(
        kernel: cl::cl_kernel,
        param: cl::cl_kernel_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        let info = kernel.client.info();
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_KERNEL_FUNCTION_NAME => answer.text(info.name.as_bytes()),
            cl::CL_KERNEL_NUM_ARGS => answer.value(info.num_args),
            cl::CL_KERNEL_REFERENCE_COUNT => answer.value(kernel.references()),
            cl::CL_KERNEL_CONTEXT => answer.value(kernel.program.context.as_ptr()),
            cl::CL_KERNEL_PROGRAM => answer.value(kernel.program.as_ptr()),
            cl::CL_KERNEL_ATTRIBUTES => answer.text(info.attributes.as_bytes()),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clGetKernelArgInfo(
        kernel: cl::cl_kernel,
        index: cl::cl_uint,
        param: cl::cl_kernel_arg_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        let info = kernel.client.info();
        if index >= info.num_args {
            return Err(ClError(cl::CL_INVALID_ARG_INDEX));
        }
        // CL_KERNEL_ARG_INFO_NOT_AVAILABLE if the argument information is not available for kernel.
        let argument = info.args.get(index as usize).ok_or(ClError(cl::CL_KERNEL_ARG_INFO_NOT_AVAILABLE))?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_KERNEL_ARG_ADDRESS_QUALIFIER => answer.value(argument.address_qualifier),
            cl::CL_KERNEL_ARG_ACCESS_QUALIFIER => answer.value(argument.access_qualifier),
            cl::CL_KERNEL_ARG_TYPE_NAME => answer.text(argument.type_name.as_bytes()),
            cl::CL_KERNEL_ARG_TYPE_QUALIFIER => answer.value(argument.type_qualifier),
            cl::CL_KERNEL_ARG_NAME => answer.text(argument.name.as_bytes()),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clGetKernelWorkGroupInfo(
        kernel: cl::cl_kernel,
        device: cl::cl_device_id,
        param: cl::cl_kernel_work_group_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let kernel = lookup::<Kernel>(kernel)?;
        let device = only_or_named(&kernel.program.devices, device)?;
        let info = kernel.client.work_group_info(&device.client()?).ok_or(ClError(cl::CL_INVALID_DEVICE))?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_KERNEL_WORK_GROUP_SIZE => answer.value(info.work_group_size),
            cl::CL_KERNEL_COMPILE_WORK_GROUP_SIZE => answer.values(&info.compile_work_group_size),
            cl::CL_KERNEL_LOCAL_MEM_SIZE => answer.value(info.local_mem_size),
            cl::CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => answer.value(info.preferred_multiple),
            cl::CL_KERNEL_PRIVATE_MEM_SIZE => answer.value(info.private_mem_size),
            // CL_KERNEL_GLOBAL_WORK_SIZE is not supported; it applies to custom devices and built-in kernels only.
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

/// CL_INVALID_DEVICE if device is invalid, or NULL while the kernel is for several devices.
pub fn only_or_named(own: &[Handle<Device>], device: cl::cl_device_id) -> Result<Handle<Device>, ClError> {
    match own {
        [only] if device.is_null() => Ok(Arc::clone(only)),
        _ => lookup::<Device>(device),
    }
}

/// Converts the value of an argument. The bytes are taken for a handle only if the argument may be an object and
/// the handle is live. Otherwise they stay bytes; the client refuses them if it knows the argument's type, and the
/// manager passes no bytes to an argument that may be a pointer.
///
/// # Safety
/// `value` is NULL or has `size` bytes.
unsafe fn argument<'a>(kind: ArgKind, size: usize, value: *const c_void) -> Result<ArgValue<'a>, ClError> {
    if value.is_null() {
        return Ok(ArgValue::NullOfSize(size as u64));
    }
    // SAFETY: `value` has `size` bytes by this function's contract.
    let bytes = unsafe { memory::array(value.cast::<u8>(), size) };
    let bytes = bytes.map_err(|_| ClError(cl::CL_INVALID_ARG_SIZE))?;
    let Ok(address) = <[u8; 8]>::try_from(bytes).map(usize::from_ne_bytes) else {
        return Ok(ArgValue::Scalar(bytes));
    };
    let handle = address as *mut c_void;
    match kind {
        ArgKind::Scalar(_) | ArgKind::Local => return Ok(ArgValue::Scalar(bytes)),
        // A pointer to a NULL handle is a NULL buffer.
        ArgKind::Buffer if address == 0 => return Ok(ArgValue::NullOfSize(size as u64)),
        ArgKind::Buffer
        | ArgKind::Image
        | ArgKind::Sampler
        | ArgKind::Pipe
        | ArgKind::DeviceQueue
        | ArgKind::Unknown => {}
    }
    if let Ok(memory) = lookup::<Memory>(handle) {
        return Ok(match memory.object()? {
            MemObject::Buffer(buffer) => ArgValue::Buffer(Arc::clone(buffer)),
            MemObject::Image(image) => ArgValue::Image(Arc::clone(image)),
            MemObject::Pipe(pipe) => ArgValue::Pipe(Arc::clone(pipe)),
        });
    }
    if let Ok(queue) = lookup::<DeviceQueue>(handle) {
        return Ok(ArgValue::DeviceQueue(Arc::clone(&queue.client)));
    }
    Ok(match lookup::<Sampler>(handle) {
        Ok(sampler) => ArgValue::Sampler(Arc::clone(&sampler.client)),
        Err(_) => ArgValue::Scalar(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(kind: ArgKind, bytes: &[u8]) -> ArgValue<'_> {
        // SAFETY: `bytes` has `bytes.len()` bytes.
        unsafe { argument(kind, bytes.len(), bytes.as_ptr().cast()) }.unwrap()
    }

    #[test]
    fn eight_garbage_bytes_are_no_buffer() {
        let garbage = 0xdead_beef_u64.to_ne_bytes();
        for kind in [ArgKind::Buffer, ArgKind::Unknown, ArgKind::Scalar(Some(8))] {
            assert!(
                matches!(of_bytes(kind, &garbage), ArgValue::Scalar(bytes) if bytes == garbage),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn a_null_buffer_may_be_given_in_both_ways() {
        // SAFETY: the value is NULL.
        let null = unsafe { argument(ArgKind::Buffer, 8, std::ptr::null()) };
        assert!(matches!(null, Ok(ArgValue::NullOfSize(8))));
        assert!(matches!(of_bytes(ArgKind::Buffer, &[0; 8]), ArgValue::NullOfSize(8)));
        // If the kind is unknown, eight zero bytes may be a number.
        assert!(matches!(of_bytes(ArgKind::Unknown, &[0; 8]), ArgValue::Scalar(_)));
    }

    #[test]
    fn local_memory_is_a_size_and_null() {
        // SAFETY: the value is NULL.
        let local = unsafe { argument(ArgKind::Local, 256, std::ptr::null()) };
        assert!(matches!(local, Ok(ArgValue::NullOfSize(256))));
    }
}

//! Pipes: memory objects for data between kernels. The host only creates them.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::info::Answer;
use crate::objects::{Context, MemObject, Memory};
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_void;

/// The flags that are allowed for a pipe, which are also the flags of every pipe.
pub const PIPE_FLAGS: u64 = cl::CL_MEM_READ_WRITE | cl::CL_MEM_HOST_NO_ACCESS;

entry_points! {
    fn clCreatePipe(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        packet_size: cl::cl_uint,
        max_packets: cl::cl_uint,
        properties: *const cl::cl_pipe_properties,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        // CL_INVALID_VALUE if flags has other flags than these, or properties is not NULL.
        if flags & !PIPE_FLAGS != 0 || !properties.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // CL_INVALID_OPERATION if no devices in context support pipes.
        let with_pipes = context.devices.iter().filter(|device| device.number(cl::CL_DEVICE_PIPE_SUPPORT) != 0);
        let largest = with_pipes.map(|device| device.number(cl::CL_DEVICE_PIPE_MAX_PACKET_SIZE)).max();
        let largest = largest.ok_or(ClError(cl::CL_INVALID_OPERATION))?;
        if packet_size == 0 || u64::from(packet_size) > largest || max_packets == 0 {
            return Err(ClError(cl::CL_INVALID_PIPE_SIZE));
        }
        let pipe = client::Pipe::new(&context.client, packet_size, max_packets)?;
        Ok(Memory::of(MemObject::Pipe(pipe), context, None).as_ptr())
    }

    fn clGetPipeInfo(
        pipe: cl::cl_mem,
        param: cl::cl_pipe_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let memory = lookup::<Memory>(pipe)?;
        let MemObject::Pipe(pipe) = memory.object()? else {
            return Err(ClError(cl::CL_INVALID_MEM_OBJECT));
        };
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_PIPE_PACKET_SIZE => answer.value(pipe.packet_size()),
            cl::CL_PIPE_MAX_PACKETS => answer.value(pipe.max_packets()),
            // The properties are always NULL.
            cl::CL_PIPE_PROPERTIES => answer.values::<isize>(&[]),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

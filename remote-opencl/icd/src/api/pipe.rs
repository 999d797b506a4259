//! Pipes: memory objects for data between kernels, which the host only creates, and host pipes, of which it has one end
//! (`cl_intel_fpga_host_pipe`). The functions of the latter are no part of the dispatch table.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, MemObject, Memory};
use crate::platforms::Platform;
use fpga_client as client;
use fpga_client::{ClError, HOST_PIPE_EXTENSION, HostEnd, MAX_PIPE_BYTES};
use std::ffi::c_void;
use std::sync::Arc;

/// The flags of a pipe between kernels.
const PIPE_FLAGS: u64 = cl::CL_MEM_READ_WRITE | cl::CL_MEM_HOST_NO_ACCESS;

entry_points! {
    fn clCreatePipe(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        packet_size: cl::cl_uint,
        max_packets: cl::cl_uint,
        properties: *const cl::cl_pipe_properties,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        let host_end = match flags {
            cl::CL_MEM_HOST_READ_ONLY => Some(HostEnd::Reads),
            cl::CL_MEM_HOST_WRITE_ONLY => Some(HostEnd::Writes),
            _ if flags & !PIPE_FLAGS == 0 => None,
            // CL_INVALID_VALUE for other flags.
            _ => return Err(ClError(cl::CL_INVALID_VALUE)),
        };
        // CL_INVALID_VALUE if properties is not NULL.
        if !properties.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let largest = largest_packet(&context, host_end)?;
        if packet_size == 0 || u64::from(packet_size) > largest || max_packets == 0 {
            return Err(ClError(cl::CL_INVALID_PIPE_SIZE));
        }
        let pipe = client::Pipe::new(&context.client, packet_size, max_packets, host_end)?;
        Ok(Memory::of(MemObject::Pipe(pipe), context, None).as_ptr())
    }

    fn clGetPipeInfo(
        pipe: cl::cl_mem,
        param: cl::cl_pipe_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let pipe = pipe_of(pipe)?;
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

    fn clReadPipeIntelFPGA(pipe: cl::cl_mem, packet: *mut c_void) -> status {
        let pipe = pipe_of(pipe)?;
        if packet.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let read = pipe.read()?;
        // SAFETY: the caller's memory has room for a packet, and `read` is one.
        unsafe { packet.cast::<u8>().copy_from_nonoverlapping(read.as_ptr(), read.len()) };
        Ok(())
    }

    fn clWritePipeIntelFPGA(pipe: cl::cl_mem, packet: *const c_void) -> status {
        let pipe = pipe_of(pipe)?;
        if packet.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's memory has a packet.
        pipe.write(unsafe { memory::array(packet.cast::<u8>(), pipe.packet_size() as usize)? })
    }

    fn clMapHostPipeIntelFPGA(
        pipe: cl::cl_mem,
        flags: cl::cl_map_flags,
        requested: usize,
        mapped: *mut usize,
    ) -> pointer {
        let pipe = pipe_of(pipe)?;
        // The extension has no flags.
        if flags != 0 || mapped.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let (address, size) = pipe.map(requested)?;
        // SAFETY: the caller's memory has room for the size.
        unsafe { memory::write(mapped, size) };
        Ok(address as *mut c_void)
    }

    fn clUnmapHostPipeIntelFPGA(
        pipe: cl::cl_mem,
        address: *mut c_void,
        size: usize,
        unmapped: *mut usize,
    ) -> status {
        pipe_of(pipe)?.unmap(address as usize, size)?;
        // SAFETY: the caller's memory is NULL or has room for the size.
        unsafe { memory::write(unmapped, size) };
        Ok(())
    }
}

/// The largest packet in bytes of a pipe in this context.
///
/// # Errors
/// `CL_INVALID_OPERATION` if no device in the context has such pipes.
fn largest_packet(context: &Context, host_end: Option<HostEnd>) -> Result<u64, ClError> {
    let largest = context.devices.iter().filter_map(|device| {
        let has_host_pipes = device.has_extension(HOST_PIPE_EXTENSION);
        match host_end {
            Some(_) => has_host_pipes.then_some(MAX_PIPE_BYTES as u64),
            // The extension sets no limit.
            None if has_host_pipes => Some(u64::from(u32::MAX)),
            None => {
                let has_pipes = device.number(cl::CL_DEVICE_PIPE_SUPPORT) != 0;
                has_pipes.then(|| device.number(cl::CL_DEVICE_PIPE_MAX_PACKET_SIZE))
            }
        }
    });
    largest.max().ok_or(ClError(cl::CL_INVALID_OPERATION))
}

fn pipe_of(pipe: cl::cl_mem) -> Result<Arc<client::Pipe>, ClError> {
    match lookup::<Memory>(pipe)?.object()? {
        MemObject::Pipe(pipe) => Ok(Arc::clone(pipe)),
        MemObject::Buffer(_) | MemObject::Image(_) => Err(ClError(cl::CL_INVALID_MEM_OBJECT)),
    }
}

/// The flags of a pipe, as `CL_MEM_FLAGS` has them.
pub fn flags_of(pipe: &client::Pipe) -> u64 {
    match pipe.host_end() {
        None => PIPE_FLAGS,
        Some(HostEnd::Reads) => cl::CL_MEM_HOST_READ_ONLY,
        Some(HostEnd::Writes) => cl::CL_MEM_HOST_WRITE_ONLY,
    }
}

/// Whether a device of the platform has host pipes.
pub fn is_on(platform: &Platform) -> bool {
    platform.devices().iter().any(|device| device.has_extension(HOST_PIPE_EXTENSION))
}

/// The address of a function of host pipes by its name; null for other names.
pub fn address_of(name: &str) -> *mut c_void {
    match name {
        "clReadPipeIntelFPGA" => clReadPipeIntelFPGA as *mut c_void,
        "clWritePipeIntelFPGA" => clWritePipeIntelFPGA as *mut c_void,
        "clMapHostPipeIntelFPGA" => clMapHostPipeIntelFPGA as *mut c_void,
        "clUnmapHostPipeIntelFPGA" => clUnmapHostPipeIntelFPGA as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

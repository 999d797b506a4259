//! Buffers and sub-buffers. ([`crate::memory`] accesses the application's memory.)

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Destructor, MemObject, Memory, UserData};
use fpga_client as client;
use fpga_client::{ClError, HostTarget, Initial, memory_flags};
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

/// The standard's `cl_mem_flags` for buffers and images.
pub const STANDARD_FLAGS: u64 = cl::CL_MEM_READ_WRITE
    | cl::CL_MEM_WRITE_ONLY
    | cl::CL_MEM_READ_ONLY
    | cl::CL_MEM_USE_HOST_PTR
    | cl::CL_MEM_ALLOC_HOST_PTR
    | cl::CL_MEM_COPY_HOST_PTR
    | cl::CL_MEM_HOST_WRITE_ONLY
    | cl::CL_MEM_HOST_READ_ONLY
    | cl::CL_MEM_HOST_NO_ACCESS;

entry_points! {
    fn clCreateBuffer(
        context: cl::cl_context,
        flags: cl::cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's host_ptr is NULL or has `size` bytes, for as long as the standard requires.
        unsafe { create(context, flags, size, host_ptr) }
    }

    fn clCreateBufferWithProperties(
        context: cl::cl_context,
        properties: *const cl::cl_mem_properties,
        flags: cl::cl_mem_flags,
        size: usize,
        host_ptr: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's list ends with 0.
        if !unsafe { memory::pairs(properties) }.is_empty() {
            return Err(ClError(cl::CL_INVALID_PROPERTY));
        }
        // SAFETY: as for clCreateBuffer.
        let handle = unsafe { create(context, flags, size, host_ptr)? };
        if !properties.is_null() {
            lookup::<Memory>(handle)?.note_empty_properties();
        }
        Ok(handle)
    }

    fn clCreateSubBuffer(
        parent: cl::cl_mem,
        flags: cl::cl_mem_flags,
        kind: cl::cl_buffer_create_type,
        region: *const c_void,
    ) -> pointer {
        let parent = lookup::<Memory>(parent)?;
        check_flags(flags)?;
        if kind != cl::CL_BUFFER_CREATE_TYPE_REGION || region.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: for this kind the caller's pointer points to a region.
        let region = unsafe { region.cast::<cl::cl_buffer_region>().read_unaligned() };
        let buffer = client::Buffer::sub(parent.buffer()?, flags, region.origin, region.size)?;
        let context = Arc::clone(&parent.context);
        Ok(Memory::new(buffer, context, Some(parent)).as_ptr())
    }

    fn clRetainMemObject(memory: cl::cl_mem) -> status {
        retain::<Memory>(memory)
    }

    fn clReleaseMemObject(memory: cl::cl_mem) -> status {
        release::<Memory>(memory)
    }

    fn clSetMemObjectDestructorCallback(
        memory: cl::cl_mem,
        notify: Option<unsafe extern "C" fn(cl::cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> status {
        let memory = lookup::<Memory>(memory)?;
        let function = notify.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        let callback = Destructor { function, user_data: UserData(user_data) };
        memory.callbacks.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
        Ok(())
    }

    fn clGetMemObjectInfo(
        memory: cl::cl_mem,
        param: cl::cl_mem_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let memory = lookup::<Memory>(memory)?;
        let About { kind, flags, bytes, host_address, maps, offset } = About::of(memory.object()?);
        let parent = memory.parent.as_ref();
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_MEM_TYPE => answer.value(kind),
            cl::CL_MEM_FLAGS => answer.value(flags),
            cl::CL_MEM_SIZE => answer.value(bytes),
            cl::CL_MEM_HOST_PTR => answer.value(host_address),
            cl::CL_MEM_MAP_COUNT => answer.count(maps),
            cl::CL_MEM_REFERENCE_COUNT => answer.value(memory.references()),
            cl::CL_MEM_CONTEXT => answer.value(memory.context.as_ptr()),
            cl::CL_MEM_ASSOCIATED_MEMOBJECT => {
                answer.value(parent.map_or(std::ptr::null_mut(), |parent| parent.as_ptr()))
            }
            cl::CL_MEM_OFFSET => answer.value(offset),
            cl::CL_MEM_USES_SVM_POINTER => answer.boolean(false),
            cl::CL_MEM_PROPERTIES => answer.values(memory.properties()),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

/// The values that clGetMemObjectInfo returns for every type of memory object.
struct About {
    kind: u32,
    flags: u64,
    bytes: usize,
    host_address: usize,
    maps: usize,
    offset: usize,
}

impl About {
    fn of(object: &MemObject) -> Self {
        match object {
            MemObject::Buffer(buffer) => Self {
                kind: cl::CL_MEM_OBJECT_BUFFER,
                flags: buffer.flags(),
                bytes: buffer.size(),
                host_address: buffer.host_address(),
                maps: buffer.map_count(),
                offset: buffer.parent().map_or(0, |(_, origin)| origin),
            },
            MemObject::Image(image) => Self {
                kind: image.shape().kind,
                flags: image.flags(),
                bytes: image.size(),
                host_address: image.host_address(),
                maps: image.map_count(),
                offset: 0,
            },
            MemObject::Pipe(pipe) => Self {
                kind: cl::CL_MEM_OBJECT_PIPE,
                flags: super::pipe::flags_of(pipe),
                bytes: pipe.packet_size() as usize * pipe.max_packets() as usize,
                host_address: 0,
                maps: 0,
                offset: 0,
            },
        }
    }
}

/// # Safety
/// `host_ptr` is NULL or has `size` bytes, until this returns, or with CL_MEM_USE_HOST_PTR until the buffer is
/// destroyed.
unsafe fn create(
    context: cl::cl_context,
    flags: cl::cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
) -> Result<*mut c_void, ClError> {
    let context = lookup::<Context>(context)?;
    check_flags(flags)?;
    // CL_INVALID_BUFFER_SIZE if size is 0. Checked before host_ptr, which is meaningless for a size of 0.
    if size == 0 {
        return Err(ClError(cl::CL_INVALID_BUFFER_SIZE));
    }
    // CL_INVALID_HOST_PTR if host_ptr is NULL and flags require it, or host_ptr is not NULL and flags don't.
    let wanted = flags & (cl::CL_MEM_USE_HOST_PTR | cl::CL_MEM_COPY_HOST_PTR) != 0;
    if wanted == host_ptr.is_null() {
        return Err(ClError(cl::CL_INVALID_HOST_PTR));
    }
    let initial = if flags & cl::CL_MEM_USE_HOST_PTR != 0 {
        // SAFETY: the memory is valid by this function's contract; the standard forbids other accesses while
        // commands use the buffer.
        Initial::Use(unsafe { HostTarget::borrowed(host_ptr.cast(), size) })
    } else if wanted {
        // SAFETY: the memory is readable by this function's contract.
        Initial::Copy(unsafe { memory::array(host_ptr.cast::<u8>(), size)? })
    } else {
        Initial::Nothing
    };
    let buffer = client::Buffer::new(&context.client, flags, size, initial)?;
    Ok(Memory::new(buffer, context, None).as_ptr())
}

fn check_flags(flags: cl::cl_mem_flags) -> Result<(), ClError> {
    check_flags_among(flags, STANDARD_FLAGS | memory_flags::OF_VENDORS)
}

/// CL_INVALID_VALUE if flags are unknown or contradict each other.
pub fn check_flags_among(flags: cl::cl_mem_flags, known: u64) -> Result<(), ClError> {
    let several = |group: u64| (flags & group).count_ones() > 1;
    let contradiction = several(cl::CL_MEM_READ_WRITE | cl::CL_MEM_WRITE_ONLY | cl::CL_MEM_READ_ONLY)
        || several(cl::CL_MEM_HOST_WRITE_ONLY | cl::CL_MEM_HOST_READ_ONLY | cl::CL_MEM_HOST_NO_ACCESS)
        || several(cl::CL_MEM_USE_HOST_PTR | cl::CL_MEM_ALLOC_HOST_PTR)
        || several(cl::CL_MEM_USE_HOST_PTR | cl::CL_MEM_COPY_HOST_PTR);
    if flags & !known != 0 || contradiction { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        for flags in [
            0,
            cl::CL_MEM_READ_ONLY | cl::CL_MEM_HOST_NO_ACCESS,
            cl::CL_MEM_ALLOC_HOST_PTR | cl::CL_MEM_COPY_HOST_PTR,
        ] {
            assert_eq!(check_flags(flags), Ok(()), "{flags:#x}");
        }
        for flags in [
            cl::CL_MEM_READ_ONLY | cl::CL_MEM_WRITE_ONLY,
            cl::CL_MEM_HOST_READ_ONLY | cl::CL_MEM_HOST_WRITE_ONLY,
            cl::CL_MEM_USE_HOST_PTR | cl::CL_MEM_COPY_HOST_PTR,
            1 << 40,
        ] {
            assert_eq!(check_flags(flags), Err(ClError(cl::CL_INVALID_VALUE)), "{flags:#x}");
        }
    }
}

//! Commands that move data of buffers: read, write, copy, fill, map, unmap, migrate.

use crate::api::wait_list;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::lookup;
use crate::memory;
use crate::objects::{MemObject, Memory, Queue};
use fpga_client::{ClError, HostSource, HostTarget, Migration, Operation};
use std::ffi::c_void;
use std::sync::Arc;

/// The known `cl_map_flags`.
const MAP_FLAGS: u64 = cl::CL_MAP_READ | cl::CL_MAP_WRITE | cl::CL_MAP_WRITE_INVALIDATE_REGION;

/// The known `cl_mem_migration_flags`.
const MIGRATION_FLAGS: u64 = cl::CL_MIGRATE_MEM_OBJECT_HOST | cl::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;

entry_points! {
    fn clEnqueueReadBuffer(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        blocking: cl::cl_bool,
        offset: usize,
        size: usize,
        target: *mut c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let buffer = lookup::<Memory>(buffer)?;
        check_region(size, target)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        // SAFETY: the caller's memory has `size` writable bytes until the command has completed.
        let target = unsafe { HostTarget::borrowed(target.cast(), size) }.awaited(wait_list::awaited(blocking));
        let done = queue.client.enqueue(Operation::Read { buffer: buffer.buffer()?, offset, target }, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueWriteBuffer(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        blocking: cl::cl_bool,
        offset: usize,
        size: usize,
        source: *const c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let buffer = lookup::<Memory>(buffer)?;
        check_region(size, source)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        // SAFETY: the caller's memory has `size` bytes that don't change until the command has completed.
        let data = unsafe { HostSource::borrowed(source.cast(), size) }.awaited(wait_list::awaited(blocking));
        let done = queue.client.enqueue(Operation::Write { buffer: buffer.buffer()?, offset, data }, &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueCopyBuffer(
        queue: cl::cl_command_queue,
        source: cl::cl_mem,
        target: cl::cl_mem,
        source_offset: usize,
        target_offset: usize,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let source = lookup::<Memory>(source)?;
        let target = lookup::<Memory>(target)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let (source, target) = (source.buffer()?, target.buffer()?);
        let copy = Operation::Copy { source, target, source_offset, target_offset, size };
        let done = queue.client.enqueue(copy, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueFillBuffer(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let buffer = lookup::<Memory>(buffer)?;
        // CL_INVALID_VALUE if pattern is NULL, if pattern_size is not a power of two up to 128, or if offset and
        // size are not multiples of pattern_size.
        if !pattern_size.is_power_of_two() || pattern_size > 128 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        if !offset.is_multiple_of(pattern_size) || !size.is_multiple_of(pattern_size) {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's pattern has `pattern_size` bytes.
        let pattern = unsafe { memory::array(pattern.cast::<u8>(), pattern_size)? };
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let fill = Operation::Fill { buffer: buffer.buffer()?, pattern, offset, size };
        let done = queue.client.enqueue(fill, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueMapBuffer(
        queue: cl::cl_command_queue,
        buffer: cl::cl_mem,
        blocking: cl::cl_bool,
        flags: cl::cl_map_flags,
        offset: usize,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> pointer {
        let queue = lookup::<Queue>(queue)?;
        let buffer = lookup::<Memory>(buffer)?;
        check_map_flags(flags)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let mapped = queue.client.map(buffer.buffer()?, flags, offset, size, &waits)?;
        wait_list::wait_if(blocking, &mapped.event)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, mapped.event, event) };
        Ok(mapped.address as *mut c_void)
    }

    fn clEnqueueUnmapMemObject(
        queue: cl::cl_command_queue,
        memory: cl::cl_mem,
        mapped: *mut c_void,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        let memory = lookup::<Memory>(memory)?;
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let done = match memory.object()? {
            MemObject::Buffer(buffer) => queue.client.unmap(buffer, mapped as usize, &waits)?,
            MemObject::Image(image) => queue.client.unmap_image(image, mapped as usize, &waits)?,
            // CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by a map of memobj. Pipes can't be
            // mapped.
            MemObject::Pipe(_) => return Err(ClError(cl::CL_INVALID_VALUE)),
        };
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueMigrateMemObjects(
        queue: cl::cl_command_queue,
        count: cl::cl_uint,
        list: *const cl::cl_mem,
        flags: cl::cl_mem_migration_flags,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        if count == 0 || flags & !MIGRATION_FLAGS != 0 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let (mut buffers, mut images) = (Vec::new(), Vec::new());
        // SAFETY: the caller's list has `count` objects.
        for handle in unsafe { memory::array(list, count as usize)? } {
            let memory = lookup::<Memory>(*handle)?;
            if memory.context.as_ptr() != queue.context.as_ptr() {
                return Err(ClError(cl::CL_INVALID_CONTEXT));
            }
            match memory.object()? {
                MemObject::Buffer(buffer) => buffers.push(Arc::clone(buffer)),
                MemObject::Image(image) => images.push(Arc::clone(image)),
                // The host has no access to pipes.
                MemObject::Pipe(_) => {}
            }
        }
        let migration = if flags & cl::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED != 0 {
            Migration::Undefined
        } else if flags & cl::CL_MIGRATE_MEM_OBJECT_HOST != 0 {
            Migration::ToHost
        } else {
            Migration::ToDevice
        };
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let done = queue.client.migrate(&buffers, &images, migration, &waits)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }
}

/// CL_INVALID_VALUE if map_flags are unknown, or INVALIDATE is combined with READ or WRITE.
pub fn check_map_flags(flags: cl::cl_map_flags) -> Result<(), ClError> {
    let invalidate = flags & cl::CL_MAP_WRITE_INVALIDATE_REGION != 0;
    let contradiction = invalidate && flags & (cl::CL_MAP_READ | cl::CL_MAP_WRITE) != 0;
    if flags & !MAP_FLAGS != 0 || contradiction { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

/// CL_INVALID_VALUE if ptr is NULL or size is 0. The client checks whether the region lies in the buffer.
fn check_region<T>(size: usize, host: *const T) -> Result<(), ClError> {
    if host.is_null() || size == 0 { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

//! Unified shared memory (`cl_intel_unified_shared_memory`). The functions are no part of the dispatch table: programs
//! look them up by name.

use crate::api::wait_list;
use crate::cl;
use crate::cl::cl_ext::{
    CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL, CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
    CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL, CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL,
    CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL, CL_MEM_ALLOC_BASE_PTR_INTEL, CL_MEM_ALLOC_DEVICE_INTEL,
    CL_MEM_ALLOC_FLAGS_INTEL, CL_MEM_ALLOC_INITIAL_PLACEMENT_DEVICE_INTEL,
    CL_MEM_ALLOC_INITIAL_PLACEMENT_HOST_INTEL, CL_MEM_ALLOC_SIZE_INTEL, CL_MEM_ALLOC_TYPE_INTEL,
    CL_MEM_ALLOC_WRITE_COMBINED_INTEL, CL_MEM_TYPE_DEVICE_INTEL, CL_MEM_TYPE_HOST_INTEL,
    CL_MEM_TYPE_SHARED_INTEL, CL_MEM_TYPE_UNKNOWN_INTEL,
};
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Kernel, Queue};
use crate::platforms::{Device, Platform};
use fpga_client::{
    Allocation, AllocationKind, AllocationProperties, ArgKind, ArgValue, ClError, HostSource, HostTarget,
    IndirectAccess, MemoryHint,
};
use std::ffi::c_void;
use std::sync::Arc;

/// The known `cl_mem_alloc_flags_intel`.
const ALLOCATION_FLAGS: u64 = CL_MEM_ALLOC_WRITE_COMBINED_INTEL
    | CL_MEM_ALLOC_INITIAL_PLACEMENT_DEVICE_INTEL
    | CL_MEM_ALLOC_INITIAL_PLACEMENT_HOST_INTEL;

/// The known `cl_mem_migration_flags`.
const MIGRATION_FLAGS: u64 = cl::CL_MIGRATE_MEM_OBJECT_HOST | cl::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;

const INVALID: ClError = ClError(cl::CL_INVALID_VALUE);

entry_points! {
    fn clHostMemAllocINTEL(
        context: cl::cl_context,
        properties: *const u64,
        size: usize,
        alignment: cl::cl_uint,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        // SAFETY: the caller's list ends with a zero.
        let flags = unsafe { allocation_flags(properties)? };
        let kind = AllocationKind::Host;
        allocate(&context, AllocationProperties { kind, device: None, flags, size, alignment })
    }

    fn clDeviceMemAllocINTEL(
        context: cl::cl_context,
        device: cl::cl_device_id,
        properties: *const u64,
        size: usize,
        alignment: cl::cl_uint,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        let device = Some(lookup::<Device>(device)?.client()?);
        // SAFETY: the caller's list ends with a zero.
        let flags = unsafe { allocation_flags(properties)? };
        let kind = AllocationKind::Device;
        allocate(&context, AllocationProperties { kind, device, flags, size, alignment })
    }

    fn clSharedMemAllocINTEL(
        context: cl::cl_context,
        device: cl::cl_device_id,
        properties: *const u64,
        size: usize,
        alignment: cl::cl_uint,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        let device = if device.is_null() { None } else { Some(lookup::<Device>(device)?.client()?) };
        // SAFETY: the caller's list ends with a zero.
        let flags = unsafe { allocation_flags(properties)? };
        let kind = AllocationKind::Shared;
        allocate(&context, AllocationProperties { kind, device, flags, size, alignment })
    }

    fn clMemFreeINTEL(context: cl::cl_context, pointer: *mut c_void) -> status {
        let context = lookup::<Context>(context)?;
        if pointer.is_null() { Ok(()) } else { Allocation::free(&context.client, pointer as usize) }
    }

    fn clMemBlockingFreeINTEL(context: cl::cl_context, pointer: *mut c_void) -> status {
        let context = lookup::<Context>(context)?;
        if pointer.is_null() { Ok(()) } else { Allocation::free_after_use(&context.client, pointer as usize) }
    }

    fn clGetMemAllocInfoINTEL(
        context: cl::cl_context,
        pointer: *const c_void,
        param: cl::cl_uint,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let context = lookup::<Context>(context)?;
        let of_context = |it: &Arc<Allocation>| Arc::ptr_eq(it.context(), &context.client);
        let allocation = Allocation::at(pointer as usize).filter(of_context);
        let properties = allocation.as_ref().map(|it| it.properties());
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            CL_MEM_ALLOC_TYPE_INTEL => answer.value(match properties.map(|it| it.kind) {
                None => CL_MEM_TYPE_UNKNOWN_INTEL,
                Some(AllocationKind::Host) => CL_MEM_TYPE_HOST_INTEL,
                Some(AllocationKind::Device) => CL_MEM_TYPE_DEVICE_INTEL,
                Some(AllocationKind::Shared) => CL_MEM_TYPE_SHARED_INTEL,
            }),
            CL_MEM_ALLOC_BASE_PTR_INTEL => answer.value(allocation.as_ref().map_or(0, |it| it.address())),
            CL_MEM_ALLOC_SIZE_INTEL => answer.value(properties.map_or(0, |it| it.size)),
            CL_MEM_ALLOC_DEVICE_INTEL => {
                let device = properties.and_then(|it| it.device.as_ref());
                answer.value(device.map_or(std::ptr::null_mut(), |device| handle_of(&context, device)))
            }
            _ if u64::from(param) == CL_MEM_ALLOC_FLAGS_INTEL => {
                answer.value(properties.map_or(0, |it| it.flags))
            }
            _ => Err(INVALID),
        }
    }

    fn clSetKernelArgMemPointerINTEL(
        kernel: cl::cl_kernel,
        index: cl::cl_uint,
        value: *const c_void,
    ) -> status {
        const INVALID_VALUE: ClError = ClError(cl::CL_INVALID_ARG_VALUE);
        let kernel = lookup::<Kernel>(kernel)?;
        if !matches!(kernel.client.arg_kind(index)?, ArgKind::Buffer | ArgKind::Unknown) {
            return Err(INVALID_VALUE);
        }
        let address = value as usize;
        if address == 0 {
            return kernel.client.set_arg(index, ArgValue::NullOfSize(size_of::<usize>() as u64));
        }
        let allocation = Allocation::of_pointer(address).ok_or(INVALID_VALUE)?;
        let offset = address - allocation.address();
        kernel.client.set_arg(index, ArgValue::Pointer(allocation, offset))
    }

    fn clEnqueueMemFillINTEL(
        queue: cl::cl_command_queue,
        target: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        // CL_INVALID_VALUE if pattern_size is not a power of two up to 128.
        if !pattern_size.is_power_of_two() || pattern_size > 128 {
            lookup::<Queue>(queue)?;
            return Err(INVALID);
        }
        // SAFETY: the caller's pattern has `pattern_size` bytes.
        let pattern = unsafe { memory::array(pattern.cast::<u8>(), pattern_size) };
        // SAFETY: the caller upholds this function's contract.
        unsafe { fill(queue, target as usize, pattern, size, (num_waits, waits, event)) }
    }

    fn clEnqueueMemsetINTEL(
        queue: cl::cl_command_queue,
        target: *mut c_void,
        value: cl::cl_int,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        // The lowest byte, like the standard library's function.
        let [byte, ..] = value.to_le_bytes();
        // SAFETY: the caller upholds this function's contract.
        unsafe { fill(queue, target as usize, Ok(&[byte]), size, (num_waits, waits, event)) }
    }

    fn clEnqueueMemcpyINTEL(
        queue: cl::cl_command_queue,
        blocking: cl::cl_bool,
        target: *mut c_void,
        source: *const c_void,
        size: usize,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        if target.is_null() || source.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller's list has `num_waits` events.
        let waits = unsafe { wait_list::read(num_waits, waits)? };
        let awaited = wait_list::awaited(blocking);
        // SAFETY: the caller's memory has `size` bytes until the command has completed. Bytes of allocations are not used
        // here.
        let (target, source) = unsafe {
            (HostTarget::borrowed(target.cast(), size), HostSource::borrowed(source.cast(), size))
        };
        let done = queue.client.memcpy(target.awaited(awaited), source.awaited(awaited), &waits)?;
        wait_list::wait_if(blocking, &done)?;
        // SAFETY: the caller's pointer is NULL or writable.
        unsafe { wait_list::give_event(&queue, done, event) };
        Ok(())
    }

    fn clEnqueueMigrateMemINTEL(
        queue: cl::cl_command_queue,
        pointer: *const c_void,
        size: usize,
        flags: cl::cl_mem_migration_flags,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        if flags & !MIGRATION_FLAGS != 0 {
            lookup::<Queue>(queue)?;
            return Err(INVALID);
        }
        // SAFETY: the caller upholds this function's contract.
        unsafe { hint(queue, MemoryHint::Migrate, (pointer as usize, size), (num_waits, waits, event)) }
    }

    fn clEnqueueMemAdviseINTEL(
        queue: cl::cl_command_queue,
        pointer: *const c_void,
        size: usize,
        _advice: cl::cl_uint,
        num_waits: cl::cl_uint,
        waits: *const cl::cl_event,
        event: *mut cl::cl_event,
    ) -> status {
        // SAFETY: the caller upholds this function's contract.
        unsafe { hint(queue, MemoryHint::Advise, (pointer as usize, size), (num_waits, waits, event)) }
    }
}

/// The number and the list of events to wait for, and the place for the command's event.
type Events = (cl::cl_uint, *const cl::cl_event, *mut cl::cl_event);

/// # Safety
/// The list has as many events as its number says, and the place is NULL or writable.
unsafe fn fill(
    queue: cl::cl_command_queue,
    target: usize,
    pattern: Result<&[u8], ClError>,
    size: usize,
    (num_waits, waits, event): Events,
) -> Result<(), ClError> {
    let queue = lookup::<Queue>(queue)?;
    let pattern = pattern?;
    // SAFETY: the caller upholds this function's contract.
    let waits = unsafe { wait_list::read(num_waits, waits)? };
    let done = queue.client.mem_fill(target, pattern, size, &waits)?;
    // SAFETY: the caller upholds this function's contract.
    unsafe { wait_list::give_event(&queue, done, event) };
    Ok(())
}

/// # Safety
/// The list has as many events as its number says, and the place is NULL or writable.
unsafe fn hint(
    queue: cl::cl_command_queue,
    hint: MemoryHint,
    (pointer, size): (usize, usize),
    (num_waits, waits, event): Events,
) -> Result<(), ClError> {
    let queue = lookup::<Queue>(queue)?;
    // SAFETY: the caller upholds this function's contract.
    let waits = unsafe { wait_list::read(num_waits, waits)? };
    let done = queue.client.mem_hint(hint, pointer, size, &waits)?;
    // SAFETY: the caller upholds this function's contract.
    unsafe { wait_list::give_event(&queue, done, event) };
    Ok(())
}

fn allocate(context: &Context, properties: AllocationProperties) -> Result<*mut c_void, ClError> {
    let allocation = Allocation::new(&context.client, properties)?;
    Ok(std::ptr::with_exposed_provenance_mut(allocation.address()))
}

/// The flags in a list of properties.
///
/// # Safety
/// `list` is NULL or a list of pairs that ends with a zero.
unsafe fn allocation_flags(list: *const u64) -> Result<u64, ClError> {
    let mut flags = 0;
    // SAFETY: the caller upholds this function's contract.
    for (key, value) in unsafe { memory::pairs(list) } {
        // CL_INVALID_PROPERTY for an unknown property, or a value that is not supported.
        if key != CL_MEM_ALLOC_FLAGS_INTEL || value & !ALLOCATION_FLAGS != 0 {
            return Err(ClError(cl::CL_INVALID_PROPERTY));
        }
        flags = value;
    }
    Ok(flags)
}

/// The handle of one of the context's devices.
fn handle_of(context: &Handle<Context>, device: &Arc<fpga_client::Device>) -> *mut c_void {
    let is = |handle: &&Handle<Device>| handle.client().is_ok_and(|client| Arc::ptr_eq(&client, device));
    context.devices.iter().find(is).map_or(std::ptr::null_mut(), |handle| handle.as_ptr())
}

/// Whether a device of the platform has unified shared memory.
pub fn is_on(platform: &Platform) -> bool {
    platform.devices().iter().any(|device| device.number(CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL) != 0)
}

/// The address of a function by its name; null for other names.
pub fn address_of(name: &str) -> *mut c_void {
    match name {
        "clHostMemAllocINTEL" => clHostMemAllocINTEL as *mut c_void,
        "clDeviceMemAllocINTEL" => clDeviceMemAllocINTEL as *mut c_void,
        "clSharedMemAllocINTEL" => clSharedMemAllocINTEL as *mut c_void,
        "clMemFreeINTEL" => clMemFreeINTEL as *mut c_void,
        "clMemBlockingFreeINTEL" => clMemBlockingFreeINTEL as *mut c_void,
        "clGetMemAllocInfoINTEL" => clGetMemAllocInfoINTEL as *mut c_void,
        "clSetKernelArgMemPointerINTEL" => clSetKernelArgMemPointerINTEL as *mut c_void,
        "clEnqueueMemFillINTEL" => clEnqueueMemFillINTEL as *mut c_void,
        "clEnqueueMemsetINTEL" => clEnqueueMemsetINTEL as *mut c_void,
        "clEnqueueMemcpyINTEL" => clEnqueueMemcpyINTEL as *mut c_void,
        "clEnqueueMigrateMemINTEL" => clEnqueueMigrateMemINTEL as *mut c_void,
        "clEnqueueMemAdviseINTEL" => clEnqueueMemAdviseINTEL as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

/// `clSetKernelExecInfo` with a parameter of this extension.
///
/// # Errors
/// `CL_INVALID_VALUE` for another parameter, a wrong size, or no value; `CL_INVALID_OPERATION` if no device of the kernel
/// has unified shared memory.
///
/// # Safety
/// `value` is NULL or has `size` bytes.
pub unsafe fn set_exec_info(
    kernel: &Kernel,
    param: cl::cl_kernel_exec_info,
    size: usize,
    value: *const c_void,
) -> Result<(), ClError> {
    let access = match param {
        CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL => IndirectAccess::Host,
        CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL => IndirectAccess::Device,
        CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL => IndirectAccess::Shared,
        CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL => IndirectAccess::Listed,
        _ => return Err(INVALID),
    };
    let on_device = |device: &Handle<Device>| device.number(CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL) != 0;
    if !kernel.program.devices.iter().any(on_device) {
        return Err(ClError(cl::CL_INVALID_OPERATION));
    }
    if value.is_null() {
        return Err(INVALID);
    }
    if access == IndirectAccess::Listed {
        if !size.is_multiple_of(size_of::<usize>()) {
            return Err(INVALID);
        }
        kernel.client.set_indirect(access, size != 0);
        return Ok(());
    }
    if size != size_of::<cl::cl_uint>() {
        return Err(INVALID);
    }
    // SAFETY: the value has as many bytes as a `cl_bool`, by this function's contract.
    let is_on = unsafe { value.cast::<cl::cl_uint>().read_unaligned() } != cl::CL_FALSE;
    kernel.client.set_indirect(access, is_on);
    Ok(())
}

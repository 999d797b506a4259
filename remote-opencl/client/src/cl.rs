//! The constants of the OpenCL standard that this crate uses, by the standard's names without `CL_`.
//!
//! This is not a complete binding: parameters of `clGet*Info` pass through as numbers.
#![expect(missing_docs, reason = "the standard's names and values")]

/// Execution statuses of commands.
pub const COMPLETE: i32 = 0;
pub const RUNNING: i32 = 1;
pub const SUBMITTED: i32 = 2;
pub const QUEUED: i32 = 3;

/// `cl_command_queue_properties`.
pub const QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE: u64 = 1;
pub const QUEUE_PROFILING_ENABLE: u64 = 1 << 1;

/// `cl_mem_flags`.
pub const MEM_READ_WRITE: u64 = 1;
pub const MEM_WRITE_ONLY: u64 = 1 << 1;
pub const MEM_READ_ONLY: u64 = 1 << 2;
pub const MEM_USE_HOST_PTR: u64 = 1 << 3;
pub const MEM_ALLOC_HOST_PTR: u64 = 1 << 4;
pub const MEM_COPY_HOST_PTR: u64 = 1 << 5;
pub const MEM_HOST_WRITE_ONLY: u64 = 1 << 7;
pub const MEM_HOST_READ_ONLY: u64 = 1 << 8;
pub const MEM_HOST_NO_ACCESS: u64 = 1 << 9;

/// `cl_map_flags`.
pub const MAP_READ: u64 = 1;
pub const MAP_WRITE: u64 = 1 << 1;
pub const MAP_WRITE_INVALIDATE_REGION: u64 = 1 << 2;

/// `cl_command_type`.
pub const COMMAND_NDRANGE_KERNEL: u32 = 0x11F0;
pub const COMMAND_TASK: u32 = 0x11F1;
pub const COMMAND_READ_BUFFER: u32 = 0x11F3;
pub const COMMAND_WRITE_BUFFER: u32 = 0x11F4;
pub const COMMAND_COPY_BUFFER: u32 = 0x11F5;
pub const COMMAND_READ_IMAGE: u32 = 0x11F6;
pub const COMMAND_WRITE_IMAGE: u32 = 0x11F7;
pub const COMMAND_COPY_IMAGE: u32 = 0x11F8;
pub const COMMAND_COPY_IMAGE_TO_BUFFER: u32 = 0x11F9;
pub const COMMAND_COPY_BUFFER_TO_IMAGE: u32 = 0x11FA;
pub const COMMAND_MAP_BUFFER: u32 = 0x11FB;
pub const COMMAND_MAP_IMAGE: u32 = 0x11FC;
pub const COMMAND_UNMAP_MEM_OBJECT: u32 = 0x11FD;
pub const COMMAND_MARKER: u32 = 0x11FE;
pub const COMMAND_READ_BUFFER_RECT: u32 = 0x1201;
pub const COMMAND_WRITE_BUFFER_RECT: u32 = 0x1202;
pub const COMMAND_COPY_BUFFER_RECT: u32 = 0x1203;
pub const COMMAND_USER: u32 = 0x1204;
pub const COMMAND_BARRIER: u32 = 0x1205;
pub const COMMAND_MIGRATE_MEM_OBJECTS: u32 = 0x1206;
pub const COMMAND_FILL_BUFFER: u32 = 0x1207;
pub const COMMAND_FILL_IMAGE: u32 = 0x1208;

/// `cl_build_status`.
pub const BUILD_SUCCESS: i32 = 0;
pub const BUILD_NONE: i32 = -1;
pub const BUILD_ERROR: i32 = -2;

/// `cl_command_type` of `cl_intel_unified_shared_memory`.
pub const COMMAND_MEMFILL_INTEL: u32 = 0x4204;
pub const COMMAND_MEMCPY_INTEL: u32 = 0x4205;
pub const COMMAND_MIGRATEMEM_INTEL: u32 = 0x4206;
pub const COMMAND_MEMADVISE_INTEL: u32 = 0x4207;

/// `cl_device_unified_shared_memory_capabilities_intel`.
pub const UNIFIED_SHARED_MEMORY_ACCESS_INTEL: u64 = 1;

/// `cl_kernel_arg_address_qualifier`.
pub const KERNEL_ARG_ADDRESS_GLOBAL: u32 = 0x119B;
pub const KERNEL_ARG_ADDRESS_LOCAL: u32 = 0x119C;
pub const KERNEL_ARG_ADDRESS_CONSTANT: u32 = 0x119D;
pub const KERNEL_ARG_ADDRESS_PRIVATE: u32 = 0x119E;
/// `cl_kernel_arg_access_qualifier` of an argument that isn't an image.
pub const KERNEL_ARG_ACCESS_NONE: u32 = 0x11A3;

/// `cl_kernel_arg_type_qualifier` of a pipe.
pub const KERNEL_ARG_TYPE_PIPE: u64 = 1 << 3;

/// `cl_device_info` parameters that this crate reads.
pub const DEVICE_HOST_MEM_CAPABILITIES_INTEL: u32 = 0x4190;
pub const DEVICE_DEVICE_MEM_CAPABILITIES_INTEL: u32 = 0x4191;
pub const DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL: u32 = 0x4192;
pub const DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL: u32 = 0x4193;
pub const DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL: u32 = 0x4194;
pub const DEVICE_MEM_BASE_ADDR_ALIGN: u32 = 0x1019;
pub const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
pub const DEVICE_VERSION: u32 = 0x102F;
pub const DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT: u32 = 0x1065;
pub const DEVICE_MAX_WORK_ITEM_DIMENSIONS: u32 = 0x1003;
pub const DEVICE_MAX_WORK_GROUP_SIZE: u32 = 0x1004;
pub const DEVICE_MAX_WORK_ITEM_SIZES: u32 = 0x1005;

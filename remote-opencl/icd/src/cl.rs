//! The C types and constants of OpenCL, re-exported from the bindings under one short name.

pub use opencl_dynamic_sys::constants::cl_ext;
pub use opencl_dynamic_sys::constants::cl_ext::{
    CL_DEVICE_PARTITION_BY_NAMES_INTEL, CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL, CL_PLATFORM_ICD_SUFFIX_KHR,
    CL_PLATFORM_NOT_FOUND_KHR,
};
pub use opencl_dynamic_sys::constants::*;
pub use opencl_dynamic_sys::types::cl_icd::cl_icd_dispatch;
pub use opencl_dynamic_sys::types::cl_platform::{cl_int, cl_uint, cl_ulong};
pub use opencl_dynamic_sys::types::*;

//! The C types and constants of OpenCL under one short name.

pub use opencl_dynamic_sys::constants::*;
pub use opencl_dynamic_sys::types::cl_icd::cl_icd_dispatch;
pub use opencl_dynamic_sys::types::cl_platform::{cl_int, cl_uint};
pub use opencl_dynamic_sys::types::*;

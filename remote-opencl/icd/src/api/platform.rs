//! Platforms.

use crate::api::usm;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::info::Answer;
use crate::masks::{self, Usm};
use crate::memory;
use crate::platforms::Platform;
use fpga_client::ClError;
use std::ffi::c_void;

/// Environment variable that is set in the device manager's process. The manager's loader must not find this
/// library, or the manager would serve itself.
const INSIDE_DEVICE_MANAGER: &str = "FPGA_INSIDE_DEVICE_MANAGER";

entry_points! {
    fn clGetPlatformIDs(
        capacity: cl::cl_uint,
        platforms: *mut cl::cl_platform_id,
        count: *mut cl::cl_uint,
    ) -> status {
        if std::env::var_os(INSIDE_DEVICE_MANAGER).is_some() {
            return Err(ClError(cl::CL_PLATFORM_NOT_FOUND_KHR));
        }
        let handles: Vec<_> = Platform::all().iter().map(|platform| platform.as_ptr()).collect();
        // SAFETY: the caller's list has room for `capacity`.
        unsafe { memory::write_list(&handles, capacity, platforms, count)? };
        // cl_khr_icd: CL_PLATFORM_NOT_FOUND_KHR if zero platforms are available.
        if handles.is_empty() { Err(ClError(cl::CL_PLATFORM_NOT_FOUND_KHR)) } else { Ok(()) }
    }

    fn clGetPlatformInfo(
        platform: cl::cl_platform_id,
        param: cl::cl_platform_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let platform = lookup::<Platform>(platform)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        let client = platform.client()?;
        let usm = if usm::is_on(&platform) { Usm::On } else { Usm::Off };
        match masks::platform(param, usm, |param| client.info(param)) {
            Some(bytes) => answer.bytes(&bytes),
            None => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clUnloadCompiler() -> status {
        Ok(())
    }

    fn clUnloadPlatformCompiler(platform: cl::cl_platform_id) -> status {
        lookup::<Platform>(platform).map(|_| ())
    }
}

/// The platform of a handle; NULL stands for the first platform.
pub fn named_or_first(platform: cl::cl_platform_id) -> Result<Handle<Platform>, ClError> {
    if platform.is_null() {
        return Platform::all().into_iter().next().ok_or(ClError(cl::CL_INVALID_PLATFORM));
    }
    lookup(platform)
}

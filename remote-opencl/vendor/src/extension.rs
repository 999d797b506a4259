//! Functions that a vendor has beyond the standard.

use crate::api::api;
use crate::info::{DeviceId, device_info, text};
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{CL_DEVICE_EXTENSIONS, CL_DEVICE_PLATFORM, cl_platform_id};
use std::ffi::{CStr, c_void};

/// Whether the device has the extension.
pub(crate) fn has_extension(device: DeviceId, name: &str) -> bool {
    let said = device_info(device, CL_DEVICE_EXTENSIONS).map(text).unwrap_or_default();
    said.split_whitespace().any(|one| one == name)
}

/// The vendor's function of this name, which is not NULL.
///
/// # Errors
/// `CL_INVALID_OPERATION` (-59) if there is none.
pub(crate) fn extension(device: DeviceId, name: &CStr) -> ClResult<*mut c_void> {
    let look_up = api()?.clGetExtensionFunctionAddressForPlatform.ok_or(ClError::INVALID_OPERATION)?;
    let platform = device_info(device, CL_DEVICE_PLATFORM)?;
    let platform = <[u8; size_of::<usize>()]>::try_from(platform).map_err(|_| ClError::INVALID_DEVICE)?;
    let platform = usize::from_ne_bytes(platform) as cl_platform_id;
    // SAFETY: the platform is that of a live device, and the name ends in NUL.
    let address = unsafe { look_up(platform, name.as_ptr()) };
    if address.is_null() { Err(ClError::INVALID_OPERATION) } else { Ok(address) }
}

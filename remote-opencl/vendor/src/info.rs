//! Platforms, devices, and the answers of `clGet*Info` as raw bytes.

use crate::api::{call, check};
use fpga_protocol::cl_error::ClResult;
use opencl_sys::{CL_DEVICE_TYPE, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, cl_device_id, cl_platform_id};
use std::ffi::c_void;
use std::ptr;

/// Maximum number of bytes of an answer. No answer that OpenCL defines comes near it.
const MAX_INFO_BYTES: usize = 1 << 20;

/// A platform of the loader. It lives as long as the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlatformId(cl_platform_id);

/// A device of a platform. It lives as long as the process, or as its [`crate::SubDevice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceId(pub(crate) cl_device_id);

// SAFETY: OpenCL makes all calls on platforms and devices thread-safe, and they are not released while in use.
unsafe impl Send for PlatformId {}
// SAFETY: as above.
unsafe impl Sync for PlatformId {}
// SAFETY: as above.
unsafe impl Send for DeviceId {}
// SAFETY: as above.
unsafe impl Sync for DeviceId {}

/// All platforms.
///
/// # Errors
/// The loader's error, -1001 if there is no platform.
pub fn platforms() -> ClResult<Vec<PlatformId>> {
    let mut count = 0;
    // SAFETY: no array is passed, and `count` is valid.
    check(unsafe { call!(clGetPlatformIDs(0, ptr::null_mut(), &raw mut count)) })?;
    let mut ids = vec![ptr::null_mut(); count as usize];
    // SAFETY: `ids` has room for `count` platforms.
    check(unsafe { call!(clGetPlatformIDs(count, ids.as_mut_ptr(), ptr::null_mut())) })?;
    Ok(ids.into_iter().filter(|id| !id.is_null()).map(PlatformId).collect())
}

/// All devices of a platform; empty if it has none.
///
/// # Errors
/// The vendor's error.
pub fn devices(platform: PlatformId) -> ClResult<Vec<DeviceId>> {
    let mut count = 0;
    // SAFETY: the platform is live, no array is passed, and `count` is valid.
    let status =
        unsafe { call!(clGetDeviceIDs(platform.0, CL_DEVICE_TYPE_ALL, 0, ptr::null_mut(), &raw mut count)) };
    if status == opencl_sys::CL_DEVICE_NOT_FOUND {
        return Ok(Vec::new());
    }
    check(status)?;
    let mut ids = vec![ptr::null_mut(); count as usize];
    // SAFETY: `ids` has room for `count` devices.
    check(unsafe {
        call!(clGetDeviceIDs(platform.0, CL_DEVICE_TYPE_ALL, count, ids.as_mut_ptr(), ptr::null_mut()))
    })?;
    Ok(ids.into_iter().filter(|id| !id.is_null()).map(DeviceId).collect())
}

/// The answer of `clGetPlatformInfo` for a parameter.
///
/// # Errors
/// The vendor's error.
pub fn platform_info(platform: PlatformId, param: u32) -> ClResult<Vec<u8>> {
    query(|size, value, needed| {
        // SAFETY: the platform is live, and `query` passes valid pointers.
        Ok(unsafe { call!(clGetPlatformInfo(platform.0, param, size, value, needed)) })
    })
}

/// The answer of `clGetDeviceInfo` for a parameter.
///
/// # Errors
/// The vendor's error.
pub fn device_info(device: DeviceId, param: u32) -> ClResult<Vec<u8>> {
    query(|size, value, needed| {
        // SAFETY: the device is live, and `query` passes valid pointers.
        Ok(unsafe { call!(clGetDeviceInfo(device.0, param, size, value, needed)) })
    })
}

impl DeviceId {
    /// Whether the device's type is CPU, so that its kernels run on this machine's processors.
    #[must_use]
    pub fn is_processors(self) -> bool {
        device_info(self, CL_DEVICE_TYPE).is_ok_and(|kind| number(&kind) & CL_DEVICE_TYPE_CPU != 0)
    }
}

/// Queries the length of an answer, then its bytes.
pub(crate) fn query(ask: impl Fn(usize, *mut c_void, *mut usize) -> ClResult<i32>) -> ClResult<Vec<u8>> {
    let mut needed = 0;
    check(ask(0, ptr::null_mut(), &raw mut needed)?)?;
    let mut value = vec![0; needed.min(MAX_INFO_BYTES)];
    if !value.is_empty() {
        check(ask(value.len(), value.as_mut_ptr().cast(), ptr::null_mut())?)?;
    }
    Ok(value)
}

/// Queries a number; zero if the answer is empty.
pub(crate) fn query_u64(ask: impl Fn(usize, *mut c_void, *mut usize) -> ClResult<i32>) -> ClResult<u64> {
    let bytes = query(ask)?;
    Ok(number(&bytes))
}

/// A little-endian number of up to 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

/// The text of a C string.
pub(crate) fn text(mut bytes: Vec<u8>) -> String {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

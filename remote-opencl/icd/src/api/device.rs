//! Devices: root devices only, since a slot is not a device of its own.

use crate::api::platform::named_or_first;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup};
use crate::info::Answer;
use crate::masks::{self, DeviceAnswer};
use crate::memory;
use crate::platforms::{Device, Platform};
use fpga_client::ClError;
use std::ffi::c_void;
use std::sync::Arc;

entry_points! {
    fn clGetDeviceIDs(
        platform: cl::cl_platform_id,
        device_type: cl::cl_device_type,
        capacity: cl::cl_uint,
        devices: *mut cl::cl_device_id,
        count: *mut cl::cl_uint,
    ) -> status {
        let platform = named_or_first(platform)?;
        platform.refresh();
        let selected = of_type(&platform, device_type)?;
        let handles: Vec<_> = selected.iter().map(|device| device.as_ptr()).collect();
        // SAFETY: the caller's list has room for `capacity`.
        unsafe { memory::write_list(&handles, capacity, devices, count)? };
        // CL_DEVICE_NOT_FOUND if no OpenCL devices that matched device_type were found.
        if handles.is_empty() { Err(ClError(cl::CL_DEVICE_NOT_FOUND)) } else { Ok(()) }
    }

    fn clGetDeviceInfo(
        device: cl::cl_device_id,
        param: cl::cl_device_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let device = lookup::<Device>(device)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_DEVICE_PLATFORM => answer.value(device.platform.as_ptr()),
            cl::CL_DEVICE_PARENT_DEVICE => answer.value(std::ptr::null_mut::<c_void>()),
            // CL_DEVICE_REFERENCE_COUNT of a root device is 1.
            cl::CL_DEVICE_REFERENCE_COUNT => answer.value(1_u32),
            cl::CL_DEVICE_AVAILABLE => {
                answer.boolean(device.client().is_ok_and(|client| client.is_available()))
            }
            param => {
                let client = device.client()?;
                match masks::device(param, |param| client.info(param)) {
                DeviceAnswer::Bytes(bytes) => answer.bytes(&bytes),
                DeviceAnswer::Verbatim(bytes) => answer.bytes(bytes),
                DeviceAnswer::Unknown => Err(ClError(cl::CL_INVALID_VALUE)),
            }}
        }
    }

    fn clRetainDevice(device: cl::cl_device_id) -> status {
        // Root devices are not counted.
        lookup::<Device>(device).map(|_| ())
    }

    fn clReleaseDevice(device: cl::cl_device_id) -> status {
        lookup::<Device>(device).map(|_| ())
    }

    fn clCreateSubDevices(
        device: cl::cl_device_id,
        _properties: *const cl::cl_device_partition_property,
        _capacity: cl::cl_uint,
        _devices: *mut cl::cl_device_id,
        _count: *mut cl::cl_uint,
    ) -> status {
        lookup::<Device>(device)?;
        // CL_INVALID_VALUE if a partition type is not supported: none is.
        Err(ClError(cl::CL_INVALID_VALUE))
    }
}

/// The devices of a platform that a type mask selects.
pub fn of_type(
    platform: &Handle<Platform>,
    device_type: cl::cl_device_type,
) -> Result<Vec<Handle<Device>>, ClError> {
    let types: Vec<u64> = platform.devices().iter().map(|device| type_of(device)).collect();
    let chosen = masks::select_devices(&types, device_type).ok_or(ClError(cl::CL_INVALID_DEVICE_TYPE))?;
    Ok(chosen.into_iter().filter_map(|index| platform.devices().get(index).map(Arc::clone)).collect())
}

fn type_of(device: &Device) -> u64 {
    number(device, cl::CL_DEVICE_TYPE).unwrap_or(cl::CL_DEVICE_TYPE_ACCELERATOR)
}

/// A 64-bit answer of the vendor.
fn number(device: &Device, param: cl::cl_device_info) -> Option<u64> {
    device.client().ok()?.info(param)?.try_into().ok().map(u64::from_ne_bytes)
}

/// The devices of a list, all valid.
///
/// # Safety
/// `list` is NULL or has `count` devices.
pub unsafe fn read_list(
    count: cl::cl_uint,
    list: *const cl::cl_device_id,
) -> Result<Vec<Handle<Device>>, ClError> {
    // CL_INVALID_VALUE if the list is NULL or the number is zero.
    if count == 0 || list.is_null() {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    // SAFETY: `count` devices by this function's contract.
    let handles = unsafe { memory::array(list, count as usize)? };
    handles.iter().map(|handle| lookup::<Device>(*handle)).collect()
}

/// As [`read_list`], where (0, NULL) stands for all of `own` and every device must be one of them.
///
/// # Safety
/// `list` is NULL or has `count` devices.
pub unsafe fn read_list_of(
    own: &[Handle<Device>],
    count: cl::cl_uint,
    list: *const cl::cl_device_id,
) -> Result<Vec<Handle<Device>>, ClError> {
    if count == 0 && list.is_null() {
        return Ok(own.to_vec());
    }
    // SAFETY: as promised by the caller.
    let devices = unsafe { read_list(count, list)? };
    if devices.iter().all(|device| own.iter().any(|other| Arc::ptr_eq(device, other))) {
        Ok(devices)
    } else {
        Err(ClError(cl::CL_INVALID_DEVICE))
    }
}

/// The client's side of handles.
pub fn clients(devices: &[Handle<Device>]) -> Result<Vec<Arc<fpga_client::Device>>, ClError> {
    devices.iter().map(|device| device.client()).collect()
}

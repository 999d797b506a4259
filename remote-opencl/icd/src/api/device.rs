//! Devices, sub-devices and timers.

use crate::api::platform::named_or_first;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, lookup, release, retain};
use crate::info::Answer;
use crate::masks::{self, DeviceAnswer};
use crate::memory;
use crate::platforms::{Device, Platform};
use fpga_client::{ClError, Client};
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
            cl::CL_DEVICE_PARENT_DEVICE => {
                answer.value(device.parent().map_or(std::ptr::null_mut(), |parent| parent.as_ptr()))
            }
            // CL_DEVICE_REFERENCE_COUNT of a root device is 1.
            cl::CL_DEVICE_REFERENCE_COUNT => {
                answer.value(if device.parent().is_some() { device.references() } else { 1 })
            }
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
        if lookup::<Device>(device)?.parent().is_some() { retain::<Device>(device) } else { Ok(()) }
    }

    fn clReleaseDevice(device: cl::cl_device_id) -> status {
        if lookup::<Device>(device)?.parent().is_some() { release::<Device>(device) } else { Ok(()) }
    }

    fn clCreateSubDevices(
        device: cl::cl_device_id,
        properties: *const cl::cl_device_partition_property,
        capacity: cl::cl_uint,
        devices: *mut cl::cl_device_id,
        count: *mut cl::cl_uint,
    ) -> status {
        let device = lookup::<Device>(device)?;
        // SAFETY: the caller's list ends as the standard requires for its kind of partition.
        let properties = unsafe { partition(properties)? };
        let client = device.client()?;
        let supported = client.info(cl::CL_DEVICE_PARTITION_PROPERTIES).unwrap_or_default();
        let mut supported = supported.chunks_exact(size_of::<i64>());
        // CL_INVALID_VALUE if a partition type is not supported.
        if !supported.any(|kind| kind == properties[0].to_ne_bytes()) {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        if devices.is_null() {
            let parts = client.count_parts(&properties)?;
            // SAFETY: the caller's pointer is NULL or writable.
            unsafe { memory::write(count, parts) };
            return Ok(());
        }
        let parts = client.parts(&properties, capacity)?;
        let parts = parts.into_iter().map(|part| Device::part(part, &device));
        let handles: Vec<_> = parts.map(|part| part.as_ptr()).collect();
        // SAFETY: the caller's list has room for `capacity` devices, and there are at most as many handles.
        unsafe { memory::write_list(&handles, capacity, devices, count) }
    }

    fn clGetDeviceAndHostTimer(
        device: cl::cl_device_id,
        device_time: *mut cl::cl_ulong,
        host_time: *mut cl::cl_ulong,
    ) -> status {
        let device = lookup::<Device>(device)?;
        check_timer(&device, host_time)?;
        if device_time.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // Times of commands are on the client's clock, so the device's timer has the same clock.
        let now = Client::now_ns();
        // SAFETY: the caller's pointer is not NULL, so it is writable.
        unsafe {
            memory::write(device_time, now);
            memory::write(host_time, now);
        }
        Ok(())
    }

    fn clGetHostTimer(device: cl::cl_device_id, host_time: *mut cl::cl_ulong) -> status {
        let device = lookup::<Device>(device)?;
        check_timer(&device, host_time)?;
        // SAFETY: the caller's pointer is not NULL, so it is writable.
        unsafe { memory::write(host_time, Client::now_ns()) };
        Ok(())
    }
}

/// CL_INVALID_OPERATION if the platform does not support timers, CL_INVALID_VALUE if host_time is NULL.
fn check_timer(device: &Device, host_time: *mut cl::cl_ulong) -> Result<(), ClError> {
    if !device.claims_3() {
        return Err(ClError(cl::CL_INVALID_OPERATION));
    }
    if host_time.is_null() { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

/// The kind of a partition and its values, without the terminator of the list.
///
/// # Safety
/// `list` is NULL or ends as the standard requires for its kind of partition.
unsafe fn partition(list: *const cl::cl_device_partition_property) -> Result<Vec<i64>, ClError> {
    const INVALID: ClError = ClError(cl::CL_INVALID_VALUE);
    // Greater than the number of parts of any device.
    const MAX_COUNTS: usize = 4096;
    if list.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the list goes on at least until its terminating 0, and entries are read in order up to that 0.
    let at = |index: usize| unsafe { list.add(index).read_unaligned() } as i64;
    let kind = at(0);
    match isize::try_from(kind) {
        Ok(cl::CL_DEVICE_PARTITION_EQUALLY | cl::CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN) => {
            let value = at(1);
            // The standard allows one kind of partition in a list.
            if value == 0 || at(2) != 0 { Err(INVALID) } else { Ok(vec![kind, value]) }
        }
        Ok(cl::CL_DEVICE_PARTITION_BY_COUNTS) => {
            let mut values = vec![kind];
            for index in 1.. {
                match at(index) {
                    0 => break,
                    _ if index > MAX_COUNTS => return Err(ClError(cl::CL_INVALID_DEVICE_PARTITION_COUNT)),
                    count => values.push(count),
                }
            }
            Ok(values)
        }
        _ => Err(INVALID),
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

/// The vendor's answer to a query with a 64-bit value.
fn number(device: &Device, param: cl::cl_device_info) -> Option<u64> {
    device.client().ok()?.info(param)?.try_into().ok().map(u64::from_ne_bytes)
}

/// The devices of a list, all of which must be valid.
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
    // SAFETY: the list is NULL or has `count` devices by this function's contract.
    let handles = unsafe { memory::array(list, count as usize)? };
    handles.iter().map(|handle| lookup::<Device>(*handle)).collect()
}

/// The devices of a list, each of which must be in `own`. The list (0, NULL) stands for all of `own`.
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
    // SAFETY: the caller upholds this function's contract.
    let devices = unsafe { read_list(count, list)? };
    if devices.iter().all(|device| own.iter().any(|other| Arc::ptr_eq(device, other))) {
        Ok(devices)
    } else {
        Err(ClError(cl::CL_INVALID_DEVICE))
    }
}

/// The client's objects of device handles.
pub fn clients(devices: &[Handle<Device>]) -> Result<Vec<Arc<fpga_client::Device>>, ClError> {
    devices.iter().map(|device| device.client()).collect()
}

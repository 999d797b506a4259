//! Parts of a device as devices of their own.

use super::api::call;
use super::handles::{Handle, handle};
use super::{ClError, ClResult, DeviceId, check};
use opencl_sys::{CL_SUCCESS, cl_device_id};
use std::ptr;

/// More parts than any device has.
pub const MAX_SUB_DEVICES: u32 = 4096;

handle! {
    /// A sub-device.
    SubDevice(cl_device_id) by clReleaseDevice
}

impl SubDevice {
    /// The parts that this partition of `device` gives; `properties` without the terminating 0.
    ///
    /// # Errors
    /// The vendor's.
    pub fn create(device: DeviceId, properties: &[isize]) -> ClResult<Vec<Self>> {
        let count = Self::count(device, properties)?;
        let list = terminated(properties);
        let mut raw = vec![ptr::null_mut(); count as usize];
        // SAFETY: the device is live, the list ends with 0, `raw` has room for `count`.
        check(unsafe {
            call!(clCreateSubDevices(device.0, list.as_ptr(), count, raw.as_mut_ptr(), ptr::null_mut()))
        })?;
        raw.into_iter().map(|raw| Self::own(raw, CL_SUCCESS)).collect()
    }

    /// How many parts that would be.
    ///
    /// # Errors
    /// The vendor's; -18 where they are more than any device has.
    pub fn count(device: DeviceId, properties: &[isize]) -> ClResult<u32> {
        let list = terminated(properties);
        let mut count = 0;
        // SAFETY: the device is live, the list ends with 0, no array is passed.
        check(unsafe {
            call!(clCreateSubDevices(device.0, list.as_ptr(), 0, ptr::null_mut(), &raw mut count))
        })?;
        if count > MAX_SUB_DEVICES {
            return Err(ClError(opencl_sys::CL_DEVICE_PARTITION_FAILED));
        }
        Ok(count)
    }

    /// As a device, live as long as `self`.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId(self.raw())
    }
}

fn terminated(properties: &[isize]) -> Vec<isize> {
    // Twice: a list of counts that its sender did not end ends all the same.
    [properties, &[0, 0]].concat()
}

//! Sub-devices: parts of a device that are devices themselves.

use crate::api::{call, check};
use crate::handles::{Handle, handle};
use crate::info::DeviceId;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{CL_SUCCESS, cl_device_id};
use std::ptr;

/// Maximum number of sub-devices; no device has as many.
pub const MAX_SUB_DEVICES: u32 = 4096;

handle! {
    /// A sub-device.
    SubDevice(cl_device_id) by clReleaseDevice
}

impl SubDevice {
    /// Makes the sub-devices of a partition of `device`. `properties` lack the terminating 0.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn create(device: DeviceId, properties: &[isize]) -> ClResult<Vec<Self>> {
        let count = Self::count(device, properties)?;
        let list = terminated(properties);
        let mut raw = vec![ptr::null_mut(); count as usize];
        // SAFETY: the device is live, the list ends with 0, and `raw` has room for `count` devices.
        check(unsafe {
            call!(clCreateSubDevices(device.0, list.as_ptr(), count, raw.as_mut_ptr(), ptr::null_mut()))
        })?;
        raw.into_iter().map(|raw| Self::own(raw, CL_SUCCESS)).collect()
    }

    /// Number of sub-devices of a partition.
    ///
    /// # Errors
    /// The vendor's error; `CL_DEVICE_PARTITION_FAILED` (-18) if there are more than `MAX_SUB_DEVICES`.
    pub fn count(device: DeviceId, properties: &[isize]) -> ClResult<u32> {
        let list = terminated(properties);
        let mut count = 0;
        // SAFETY: the device is live, the list ends with 0, and no array is passed.
        check(unsafe {
            call!(clCreateSubDevices(device.0, list.as_ptr(), 0, ptr::null_mut(), &raw mut count))
        })?;
        if count > MAX_SUB_DEVICES {
            return Err(ClError::DEVICE_PARTITION_FAILED);
        }
        Ok(count)
    }

    /// The device, live as long as `self`.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId(self.raw())
    }
}

fn terminated(properties: &[isize]) -> Vec<isize> {
    // Two zeros are appended, so that a list of counts whose sender did not terminate it ends too.
    [properties, &[0, 0]].concat()
}

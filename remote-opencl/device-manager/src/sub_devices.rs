//! Sub-devices of a session: parts of a device of the inventory, or of another sub-device.
//!
//! The slots are the whole device's: a sub-device has none of its own, and its tasks wait for the same.

use crate::inventory::{Device, answers_of};
use crate::vendor::{self, ClError, ClResult};
use fpga_protocol::v1;
use opencl_sys::CL_INVALID_VALUE;
use std::sync::Arc;

/// Ids of sub-devices have this bit, so that none is that of a root device.
pub const ID_BIT: u64 = 1 << 63;

/// A sub-device.
#[derive(Debug)]
pub struct SubDevice {
    /// As contexts, queues and programs know it.
    pub device: Device,
    /// The vendor's reference.
    _vendor: vendor::SubDevice,
    /// What it is a part of, where that is a sub-device too.
    _parent: Option<Arc<SubDevice>>,
}

/// What a partition gives.
#[derive(Debug)]
pub struct Partition {
    /// How many parts.
    pub count: u32,
    /// The parts, where ids for them were given.
    pub parts: Vec<SubDevice>,
}

impl Partition {
    /// Partitions a device.
    ///
    /// # Errors
    /// The vendor's; -30 where the ids are too few or are none of sub-devices.
    pub fn new(
        device: Device,
        parent: Option<&Arc<SubDevice>>,
        properties: &[i64],
        ids: &[u64],
    ) -> ClResult<Self> {
        let invalid = ClError(CL_INVALID_VALUE);
        let properties: Vec<isize> = properties
            .iter()
            // Kinds, counts and domains all fit into 32 bits, and runtimes cut off what doesn't.
            .map(|property| u32::try_from(*property).ok().and_then(|it| isize::try_from(it).ok()))
            .collect::<Option<_>>()
            .ok_or(invalid)?;
        if ids.is_empty() {
            let count = vendor::SubDevice::count(device.vendor, &properties)?;
            return Ok(Self { count, parts: Vec::new() });
        }
        let made = vendor::SubDevice::create(device.vendor, &properties)?;
        if ids.len() < made.len() || ids.iter().any(|id| id & ID_BIT == 0) {
            return Err(invalid);
        }
        let part = |(vendor, id): (vendor::SubDevice, &u64)| SubDevice {
            device: Device { id: *id, vendor: vendor.id(), platform: device.platform },
            _vendor: vendor,
            _parent: parent.cloned(),
        };
        let parts: Vec<_> = made.into_iter().zip(ids).map(part).collect();
        Ok(Self { count: u32::try_from(parts.len()).unwrap_or(0), parts })
    }
}

impl SubDevice {
    /// What the client is told of it.
    #[must_use]
    pub fn describe(&self) -> v1::Device {
        v1::Device { id: self.device.id, info: answers_of(self.device.vendor) }
    }
}

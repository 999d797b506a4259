//! Sub-devices of a session: parts of a device of the inventory, or of another sub-device.
//!
//! A sub-device has no slots of its own: its tasks wait for the slots of the whole device.

use crate::inventory::{Device, answers_of};
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, ClError, ClResult};
use std::sync::Arc;

/// Bit that is set in the ids of all sub-devices and in no id of a root device.
pub const ID_BIT: u64 = 1 << 63;

/// A sub-device.
#[derive(Debug)]
pub struct SubDevice {
    /// The device for contexts, queues and programs.
    pub device: Device,
    /// The vendor's reference to the sub-device.
    _vendor: vendor::SubDevice,
    /// The sub-device that this one is a part of; `None` for a part of a root device.
    _parent: Option<Arc<SubDevice>>,
}

/// The result of a partition.
#[derive(Debug)]
pub struct Partition {
    /// Number of parts.
    pub count: u32,
    /// The parts; empty if no ids were given for them.
    pub parts: Vec<SubDevice>,
}

impl Partition {
    /// Partitions a device.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if there are fewer ids than parts, or an id is not one of a
    /// sub-device.
    pub fn new(
        device: &Device,
        parent: Option<&Arc<SubDevice>>,
        properties: &[i64],
        ids: &[u64],
    ) -> ClResult<Self> {
        let invalid = ClError::INVALID_VALUE;
        let properties: Vec<isize> = properties
            .iter()
            // Kinds, counts and domains all fit into 32 bits, and runtimes truncate longer values.
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
            device: Device {
                id: *id,
                vendor: vendor.id(),
                platform: device.platform,
                clock: Arc::clone(&device.clock),
            },
            _vendor: vendor,
            _parent: parent.cloned(),
        };
        let parts: Vec<_> = made.into_iter().zip(ids).map(part).collect();
        Ok(Self { count: u32::try_from(parts.len()).unwrap_or(0), parts })
    }
}

impl SubDevice {
    /// The description for the client.
    #[must_use]
    pub fn describe(&self) -> v1::Device {
        v1::Device { id: self.device.id, info: answers_of(self.device.vendor) }
    }
}

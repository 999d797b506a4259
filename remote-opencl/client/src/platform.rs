//! Platforms and devices: what the manager's vendor runtime says of itself, fetched once when the session starts.

use std::sync::{Arc, Weak};

/// One vendor platform of one device manager.
#[derive(Debug)]
pub struct Platform {
    info: Vec<(u32, bytes::Bytes)>,
    devices: Vec<Arc<Device>>,
}

/// One device of a platform.
#[derive(Debug)]
pub struct Device {
    info: Vec<(u32, bytes::Bytes)>,
    platform: Weak<Platform>,
}

impl Platform {
    /// The vendor's answer to a `cl_platform_info` parameter, verbatim.
    pub fn info(&self, param: u32) -> Option<&[u8]> {
        self.info.iter().find(|(p, _)| *p == param).map(|(_, v)| v.as_ref())
    }

    /// Its devices, in the vendor's order.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Whether its manager is still connected.
    pub fn is_available(&self) -> bool {
        false
    }
}

impl Device {
    /// The vendor's answer to a `cl_device_info` parameter, verbatim; never one that is a handle.
    pub fn info(&self, param: u32) -> Option<&[u8]> {
        self.info.iter().find(|(p, _)| *p == param).map(|(_, v)| v.as_ref())
    }

    /// Its platform, while somebody holds that.
    pub fn platform(&self) -> Option<Arc<Platform>> {
        self.platform.upgrade()
    }

    /// Whether its manager is still connected (`CL_DEVICE_AVAILABLE`).
    pub fn is_available(&self) -> bool {
        false
    }
}

//! A context of a session.

use crate::inventory::Device;
use crate::sub_devices::SubDevice;
use fpga_vendor::{self as vendor, ClError, ClResult};
use parking_lot::Mutex;
use std::sync::Arc;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// A queue that fills buffers with zeros, made at its first use. It is released before its device.
    housekeeping: Mutex<Option<Arc<vendor::Queue>>>,
    /// The vendor's context.
    pub vendor: vendor::Context,
    /// The devices, in the order of the call that made the context.
    pub devices: Vec<Device>,
    /// The sub-devices among the devices, which the context keeps alive.
    _sub_devices: Vec<Arc<SubDevice>>,
}

impl Context {
    /// Makes a context of `devices`. `sub_devices` are the sub-devices among them.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(devices: Vec<Device>, sub_devices: Vec<Arc<SubDevice>>) -> ClResult<Self> {
        let vendor: Vec<_> = devices.iter().map(|device| device.vendor).collect();
        let vendor = vendor::Context::new(&vendor)?;
        Ok(Self { vendor, devices, _sub_devices: sub_devices, housekeeping: Mutex::new(None) })
    }

    /// The queue that fills buffers with zeros.
    pub(crate) fn housekeeping(&self) -> ClResult<Arc<vendor::Queue>> {
        let mut queue = self.housekeeping.lock();
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let device = self.devices.first().ok_or(ClError::INVALID_CONTEXT)?;
        let made = Arc::new(vendor::Queue::new(&self.vendor, device.vendor, 0)?);
        *queue = Some(made.clone());
        Ok(made)
    }
}

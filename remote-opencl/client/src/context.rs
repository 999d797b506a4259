//! Contexts: the devices of one platform that share objects.

use crate::error::{ClError, Result};
use crate::platform::Device;
use std::sync::Arc;

/// An OpenCL context, of one platform of one manager.
#[derive(Debug)]
pub struct Context {
    devices: Vec<Arc<Device>>,
}

impl Context {
    /// A context of `devices`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for none, `CL_INVALID_DEVICE` for devices of several platforms, `CL_DEVICE_NOT_AVAILABLE`
    /// when the manager is gone.
    pub fn new(_devices: &[Arc<Device>]) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its devices, in the order of the call.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }
}

//! Contexts: the devices of one platform that share objects.

use crate::error::{ClError, Result};
use crate::objects::platform::Device;
use crate::session::{Session, check_status};
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// An OpenCL context for devices of one platform of one manager.
#[derive(Debug)]
pub struct Context {
    id: u64,
    session: Arc<Session>,
    devices: Vec<Arc<Device>>,
}

impl Context {
    /// A context of `devices`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for no devices, `CL_INVALID_DEVICE` for devices of several platforms,
    /// `CL_DEVICE_NOT_AVAILABLE` if the manager is gone, and the errors of the manager's runtime.
    pub fn new(devices: &[Arc<Device>]) -> Result<Arc<Self>> {
        let first = devices.first().ok_or(ClError::INVALID_VALUE)?;
        if !devices.iter().all(|device| device.is_beside(first)) {
            return Err(ClError::INVALID_DEVICE);
        }
        let session = Arc::clone(first.session());
        let id = session.new_id();
        let devices_of_call = devices.iter().map(|device| device.id()).collect();
        let create = v1::CreateContext { context: id, devices: devices_of_call };
        check_status(session.call(Method::CreateContext(create))?.status)?;
        Ok(Arc::new(Self { id, session, devices: devices.to_vec() }))
    }

    /// The devices of the context, in the order of the call.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether `device` is a device of the context.
    pub(crate) fn has(&self, device: &Device) -> bool {
        self.devices.iter().any(|its| its.is(device))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.session.release(self.id);
    }
}

//! Queues on the device (OpenCL 2.0), which only kernels enqueue to.

use crate::error::{ClError, Result};
use crate::objects::context::Context;
use crate::objects::platform::Device;
use crate::session::check_status;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// A queue on the device.
#[derive(Debug)]
pub struct DeviceQueue {
    id: u64,
    context: Arc<Context>,
    device: Arc<Device>,
    properties: u64,
}

impl DeviceQueue {
    /// `clCreateCommandQueueWithProperties` with `CL_QUEUE_ON_DEVICE`. A `size` of 0 means the size that the device
    /// prefers.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` if `device` is not in the context, and the errors of the manager's runtime.
    pub fn new(
        context: &Arc<Context>,
        device: &Arc<Device>,
        properties: u64,
        size: u32,
    ) -> Result<Arc<Self>> {
        if !context.has(device) {
            return Err(ClError::INVALID_DEVICE);
        }
        let session = context.session();
        let queue = Arc::new(Self {
            id: session.new_id(),
            context: Arc::clone(context),
            device: Arc::clone(device),
            properties,
        });
        let create = v1::CreateDeviceQueue {
            queue: queue.id,
            context: context.id(),
            device: device.id(),
            properties,
            size,
        };
        check_status(session.call(Method::CreateDeviceQueue(create))?.status)?;
        Ok(queue)
    }

    /// `clSetDefaultDeviceCommandQueue`.
    ///
    /// # Errors
    /// The errors of the manager's runtime.
    pub fn become_default(&self) -> Result<()> {
        let set = v1::SetDefaultDeviceQueue {
            context: self.context.id(),
            device: self.device.id(),
            queue: self.id,
        };
        check_status(self.context.session().call(Method::SetDefaultDeviceQueue(set))?.status)
    }

    /// The context of the queue.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The `cl_command_queue_properties` of the queue.
    pub fn properties(&self) -> u64 {
        self.properties
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for DeviceQueue {
    fn drop(&mut self) {
        self.context.session().release(self.id);
    }
}

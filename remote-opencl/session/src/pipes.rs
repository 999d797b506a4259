//! Pipes and queues on a device: objects that only kernels use.

use crate::context::Context;
use crate::inventory::Device;
use crate::quotas::Charge;
use fpga_vendor::{self as vendor, ClError, ClResult, Memory};
use opencl_sys::{CL_QUEUE_ON_DEVICE, CL_QUEUE_ON_DEVICE_DEFAULT};
use std::sync::Arc;

/// The properties that only a queue on a device may have.
pub const ON_DEVICE: u64 = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    /// The vendor's pipe.
    pub vendor: Memory,
    /// The pipe's context.
    pub context: Arc<Context>,
    _charges: [Charge; 2],
}

/// A queue on a device.
#[derive(Debug)]
pub struct DeviceQueue {
    /// The vendor's queue.
    pub vendor: vendor::Queue,
    /// The queue's context.
    pub context: Arc<Context>,
    /// The queue's device.
    pub device: Device,
    /// The charge for the queue's memory.
    _charge: Charge,
}

impl Pipe {
    /// Makes a pipe.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(
        context: Arc<Context>,
        packet_size: u32,
        max_packets: u32,
        charges: [Charge; 2],
    ) -> ClResult<Self> {
        let device = context.devices.first().ok_or(ClError::INVALID_CONTEXT)?;
        let vendor = Memory::pipe(&context.vendor, device.vendor, packet_size, max_packets)?;
        Ok(Self { vendor, context, _charges: charges })
    }
}

impl DeviceQueue {
    /// Makes a queue on a device of the context.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(
        context: Arc<Context>,
        device: Device,
        properties: u64,
        size: u32,
        charge: Charge,
    ) -> ClResult<Self> {
        let vendor = vendor::Queue::on_device(&context.vendor, device.vendor, properties, size)?;
        Ok(Self { vendor, context, device, _charge: charge })
    }
}

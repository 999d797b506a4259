//! Pipes, and queues on a device.

use crate::context::Context;
use crate::inventory::Device;
use crate::quotas::Charge;
use fpga_protocol::host_pipes::HostEnd;
use fpga_vendor::{self as vendor, ClError, ClResult, HostPipe, Memory};
use opencl_sys::{CL_QUEUE_ON_DEVICE, CL_QUEUE_ON_DEVICE_DEFAULT};
use std::sync::Arc;

/// The properties that only a queue on a device may have.
pub const ON_DEVICE: u64 = CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    ends: Ends,
    /// The pipe's context.
    pub context: Arc<Context>,
    _charges: [Charge; 2],
}

/// The ends of a pipe.
#[derive(Debug)]
enum Ends {
    /// Kernels have both ends.
    Kernels(Memory),
    /// A kernel and the host have one end each.
    Host(HostPipe),
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
    /// Makes a pipe, of which the host may have one end.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(
        context: Arc<Context>,
        packet_size: u32,
        max_packets: u32,
        host_end: Option<HostEnd>,
        charges: [Charge; 2],
    ) -> ClResult<Self> {
        let device = context.devices.first().ok_or(ClError::INVALID_CONTEXT)?.vendor;
        let of = &context.vendor;
        let ends = match host_end {
            None => Ends::Kernels(Memory::pipe(of, device, packet_size, max_packets)?),
            Some(end) => Ends::Host(HostPipe::new(of, device, packet_size, max_packets, end)?),
        };
        Ok(Self { ends, context, _charges: charges })
    }

    /// The vendor's pipe.
    #[must_use]
    pub fn vendor(&self) -> &Memory {
        match &self.ends {
            Ends::Kernels(memory) => memory,
            Ends::Host(pipe) => pipe.memory(),
        }
    }

    /// The host's end.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` (-38) if the host has none.
    pub fn host(&self) -> ClResult<&HostPipe> {
        match &self.ends {
            Ends::Kernels(_) => Err(ClError::INVALID_MEM_OBJECT),
            Ends::Host(pipe) => Ok(pipe),
        }
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

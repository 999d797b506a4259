//! A command queue of a session.

use crate::context::Context;
use crate::dependencies::QueueOrder;
use crate::inventory::Device;
use fpga_vendor::{self as vendor, ClResult};
use std::sync::Arc;

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    /// The vendor's queue.
    pub vendor: vendor::Queue,
    /// Whether the queue executes its commands in order.
    pub order: QueueOrder,
    /// The queue's context.
    pub context: Arc<Context>,
    /// The queue's device.
    pub device: Device,
    /// Whether the client may read the times of its commands.
    pub times: Times,
    /// Whether the device runs kernels in a thread that waits for them.
    pub waiting: Waiting,
}

/// Whether a client may read when the commands of a queue ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The client may read the times.
    Shown,
    /// The times are measured, but the client can't read them.
    Hidden,
}

/// How a device uses a thread that waits in the vendor's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The device is made of processors and may run kernels in the thread.
    Helps,
    /// The thread only waits.
    Waits,
}

impl Queue {
    /// Makes a queue for a device of the context.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: Arc<Context>, device: Device, properties: u64) -> ClResult<Self> {
        let vendor = vendor::Queue::new(&context.vendor, device.vendor, properties)?;
        let order = if properties & opencl_sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0 {
            QueueOrder::InOrder
        } else {
            QueueOrder::OutOfOrder
        };
        let profiling = properties & opencl_sys::CL_QUEUE_PROFILING_ENABLE != 0;
        let times = if profiling { Times::Shown } else { Times::Hidden };
        let waiting = if device.vendor.is_processors() { Waiting::Helps } else { Waiting::Waits };
        Ok(Self { vendor, order, context, device, times, waiting })
    }
}

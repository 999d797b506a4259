//! A command queue of a session.

use crate::context::Context;
use crate::dependencies::QueueOrder;
use crate::inventory::Device;
use crate::moments::Moments;
use fpga_vendor::{self as vendor, ClResult, CommandProfile};
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum change, in nanoseconds, of a measured difference of the clocks that is taken for the duration of a call.
const MAX_CLOCK_DRIFT: i64 = 1_000_000;

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
    /// Offset from the vendor's clock to the manager's, in nanoseconds.
    offset: Mutex<Option<i64>>,
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
        Ok(Self { vendor, order, context, device, times, waiting, offset: Mutex::new(None) })
    }

    /// Translates the vendor's times to the manager's clock. All commands of the queue use one offset, so durations
    /// stay exact; the offset changes only when the clocks have drifted by more than a millisecond.
    #[must_use]
    pub fn moments(&self, enqueued_at: u64, profile: CommandProfile) -> Moments {
        let measured = enqueued_at.wrapping_sub(profile.queued).cast_signed();
        let mut offset = self.offset.lock();
        let kept = offset
            .filter(|kept| (measured.wrapping_sub(*kept)).unsigned_abs() <= MAX_CLOCK_DRIFT.unsigned_abs());
        let offset = *offset.insert(kept.unwrap_or(measured));
        let ours = |moment: u64| moment.wrapping_add_signed(offset);
        let queued = ours(profile.queued);
        let submitted = ours(profile.submitted).max(queued);
        let started = ours(profile.started).max(submitted);
        Moments { queued, submitted, started, ended: ours(profile.ended).max(started) }
    }
}

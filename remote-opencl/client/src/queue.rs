//! Command queues: what can be enqueued, and the order of it.

use crate::buffer::Buffer;
use crate::context::Context;
use crate::error::{ClError, Result};
use crate::event::Event;
use crate::host_memory::{HostSource, HostTarget};
use crate::kernel::Kernel;
use crate::platform::Device;
use std::sync::Arc;

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    context: Arc<Context>,
    device: Arc<Device>,
    properties: u64,
}

/// A command.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields are the parameters of the C call that the variant names")]
pub enum Operation<'a> {
    /// `clEnqueueNDRangeKernel`; `offset` and `local` may be empty (NULL). `CL_COMMAND_NDRANGE_KERNEL`.
    NdRange { kernel: &'a Kernel, offset: &'a [usize], global: &'a [usize], local: &'a [usize] },
    /// `clEnqueueWriteBuffer`.
    Write { buffer: &'a Arc<Buffer>, offset: usize, data: HostSource },
    /// `clEnqueueReadBuffer`, of as many bytes as the target has.
    Read { buffer: &'a Arc<Buffer>, offset: usize, target: HostTarget },
    /// `clEnqueueCopyBuffer`.
    Copy {
        source: &'a Arc<Buffer>,
        target: &'a Arc<Buffer>,
        source_offset: usize,
        target_offset: usize,
        size: usize,
    },
    /// `clEnqueueFillBuffer`.
    Fill { buffer: &'a Arc<Buffer>, pattern: &'a [u8], offset: usize, size: usize },
    /// `clEnqueueMarkerWithWaitList`.
    Marker,
    /// `clEnqueueBarrierWithWaitList`.
    Barrier,
    /// `clEnqueueMigrateMemObjects`: a hint; completes in order.
    Migrate,
}

/// A mapped region: the address that the application gets, valid when the event has completed.
#[derive(Debug)]
pub struct Mapped {
    /// The event of the map command.
    pub event: Arc<Event>,
    /// Address of the region's first byte.
    pub address: usize,
}

impl Queue {
    /// A queue of `device` in `context`; `properties` are `cl_command_queue_properties`.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE`, `CL_INVALID_VALUE` for unknown properties, `CL_INVALID_QUEUE_PROPERTIES`.
    pub fn new(_context: &Arc<Context>, _device: &Arc<Device>, _properties: u64) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its `cl_command_queue_properties`.
    pub fn properties(&self) -> u64 {
        self.properties
    }

    /// Enqueues a command; never waits for it (a blocking call is this and [`Event::wait_for_status`]).
    ///
    /// # Errors
    /// The codes of the C call. Wait list of another context: `CL_INVALID_CONTEXT`.
    pub fn enqueue(&self, _operation: Operation<'_>, _wait: &[Arc<Event>]) -> Result<Arc<Event>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clEnqueueMapBuffer`; `flags` are `cl_map_flags`.
    ///
    /// # Errors
    /// The codes of the C call.
    pub fn map(
        &self,
        _buffer: &Arc<Buffer>,
        _flags: u64,
        _offset: usize,
        _size: usize,
        _wait: &[Arc<Event>],
    ) -> Result<Mapped> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clEnqueueUnmapMemObject` of an address that [`Self::map`] returned.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for an address that isn't mapped.
    pub fn unmap(&self, _buffer: &Arc<Buffer>, _address: usize, _wait: &[Arc<Event>]) -> Result<Arc<Event>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clFlush`: what was enqueued so far is on its way when this returns.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` when the manager is gone.
    pub fn flush(&self) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clFinish`: waits for everything that was enqueued in this queue so far.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` when the manager is gone.
    pub fn finish(&self) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }
}

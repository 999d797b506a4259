//! Command queues: the order of their commands, and failures that the program was not told yet.

use crate::cl;
use crate::error::{ClError, Result};
use crate::objects::context::Context;
use crate::objects::failures::Failures;
use crate::objects::platform::Device;
use crate::objects::progress::Progress;
use crate::session::Session;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    id: u64,
    context: Arc<Context>,
    device: Arc<Device>,
    properties: u64,
    progress: Progress,
    failures: Failures,
}

impl Queue {
    /// A queue of `device` in `context`; `properties` are `cl_command_queue_properties`. The call makes no round
    /// trip.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` if `device` is not in `context`, `CL_INVALID_VALUE` for unknown properties,
    /// `CL_DEVICE_NOT_AVAILABLE` if the manager is gone.
    pub fn new(context: &Arc<Context>, device: &Arc<Device>, properties: u64) -> Result<Arc<Self>> {
        if !context.has(device) {
            return Err(ClError::INVALID_DEVICE);
        }
        if properties & !(cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | cl::QUEUE_PROFILING_ENABLE) != 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateQueue(v1::CreateQueue {
            queue: id,
            context: context.id(),
            device: device.id(),
            properties,
        }))?;
        Ok(Arc::new(Self {
            id,
            context: Arc::clone(context),
            device: Arc::clone(device),
            properties,
            progress: Progress::default(),
            failures: Failures::default(),
        }))
    }

    /// The context of the queue.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device of the queue.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The `cl_command_queue_properties` of the queue.
    pub fn properties(&self) -> u64 {
        self.properties
    }

    /// `clFlush`: sends all commands enqueued so far.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the manager is gone.
    pub fn flush(&self) -> Result<()> {
        self.session().flush()
    }

    /// `clFinish`: waits for all commands enqueued in this queue so far.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the manager is gone, or the first failure of a command that the program was not
    /// told yet.
    pub fn finish(&self) -> Result<()> {
        let session = self.session();
        session.check(ClError::OUT_OF_RESOURCES)?;
        session.send();
        if let Some(last) = self.progress.last() {
            session.wait(|| self.progress.have_ended(last), self.progress.ended_until(last));
        }
        session.check(ClError::OUT_OF_RESOURCES)?;
        self.failures.take().map_or(Ok(()), Err)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether each command of the queue waits for the commands before it.
    pub(super) fn is_in_order(&self) -> bool {
        self.properties & cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0
    }

    /// The commands that haven't ended.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Failures that the program was not told yet.
    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        self.context.session()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.session().release(self.id);
    }
}

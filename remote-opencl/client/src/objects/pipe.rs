//! Pipes between kernels (OpenCL 2.0).

use crate::error::Result;
use crate::objects::context::Context;
use crate::session::check_status;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// A pipe, which the host can't access.
#[derive(Debug)]
pub struct Pipe {
    id: u64,
    context: Arc<Context>,
    packet_size: u32,
    max_packets: u32,
}

impl Pipe {
    /// `clCreatePipe`.
    ///
    /// # Errors
    /// The errors of the manager's runtime, `CL_DEVICE_NOT_AVAILABLE` if the manager is gone.
    pub fn new(context: &Arc<Context>, packet_size: u32, max_packets: u32) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        let create = v1::CreatePipe { pipe: id, context: context.id(), packet_size, max_packets };
        let pipe = Arc::new(Self { id, context: Arc::clone(context), packet_size, max_packets });
        check_status(session.call(Method::CreatePipe(create))?.status)?;
        Ok(pipe)
    }

    /// The context of the pipe.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Size of a packet in bytes.
    pub fn packet_size(&self) -> u32 {
        self.packet_size
    }

    /// Capacity of the pipe in packets.
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.context.session().release(self.id);
    }
}

//! Samplers.

use crate::error::Result;
use crate::objects::context::Context;
use crate::session::check_status;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// A sampler.
#[derive(Debug)]
pub struct Sampler {
    id: u64,
    context: Arc<Context>,
}

impl Sampler {
    /// `clCreateSampler`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for unknown modes, and the other errors of the manager's runtime.
    pub fn new(context: &Arc<Context>, normalized: bool, addressing: u32, filter: u32) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        let create = v1::CreateSampler { sampler: id, context: context.id(), normalized, addressing, filter };
        let sampler = Arc::new(Self { id, context: Arc::clone(context) });
        check_status(session.call(Method::CreateSampler(create))?.status)?;
        Ok(sampler)
    }

    /// The context of the sampler.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.context.session().release(self.id);
    }
}

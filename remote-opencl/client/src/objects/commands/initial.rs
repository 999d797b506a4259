//! Buffers with initial content.

use super::parts::{WHOLE_BYTES, is_long};
use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_memory::HostSource;
use crate::objects::buffer::{Buffer, Initial};
use crate::objects::context::Context;
use crate::objects::queue::Queue;
use std::sync::Arc;

impl Buffer {
    /// A buffer of `size` bytes; `flags` are `cl_mem_flags`. The call makes a round trip only for a vendor's flag, and for
    /// long initial content. Otherwise, if the manager can't make the buffer (no memory), its first use fails.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for contradicting flags, `CL_INVALID_HOST_PTR` if `initial` doesn't fit the flags or the
    /// size, `CL_INVALID_BUFFER_SIZE` for 0 or more than any device allows, `CL_DEVICE_NOT_AVAILABLE` if the
    /// manager is gone.
    pub fn new(context: &Arc<Context>, flags: u64, size: usize, initial: Initial<'_>) -> Result<Arc<Self>> {
        let copied = if let Initial::Copy(bytes) = initial { Some(bytes) } else { None };
        let is_used = matches!(initial, Initial::Use(_));
        let buffer = Self::create(context, flags, size, initial, WHOLE_BYTES)?;
        if !is_long(size) || buffer.storage().is_some() {
            return Ok(buffer);
        }
        if let Some(bytes) = copied {
            HostSource::with_slice(bytes, |source| buffer.begin_with(source))?;
        } else if is_used {
            let memory = buffer.host_memory(0, size)?;
            buffer.begin_with(&memory.part_as_source(0, size).ok_or(ClError::INVALID_VALUE)?)?;
        }
        Ok(buffer)
    }

    /// Writes the initial content, and waits for the end.
    fn begin_with(self: &Arc<Self>, content: &HostSource) -> Result<()> {
        let content = content.part(0, content.len()).ok_or(ClError::INVALID_VALUE)?;
        let device = self.context().devices().first().ok_or(ClError::INVALID_CONTEXT)?;
        let queue = Queue::new(self.context(), device, 0)?;
        queue.write(cl::COMMAND_WRITE_BUFFER, self, 0, content, Vec::new())?.wait_for_status()
    }
}

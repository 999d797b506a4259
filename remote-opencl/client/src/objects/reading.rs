//! Reads of a buffer into memory of this crate.
#![allow(unsafe_code)]

use crate::error::{ClError, Result};
use crate::memory::host_memory::OwnedTarget;
use crate::objects::buffer::Buffer;
use crate::objects::commands::Operation;
use crate::objects::event::Event;
use crate::objects::queue::Queue;
use bytes::Bytes;
use std::sync::Arc;

/// A read whose bytes this crate keeps until the program takes them. It may be dropped at any time.
#[derive(Debug)]
pub struct Reading {
    event: Arc<Event>,
    memory: OwnedTarget,
}

impl Queue {
    /// Enqueues a read of `len` bytes from `offset` on. Unlike [`Operation::Read`], it needs no memory of the program.
    ///
    /// # Errors
    /// Those of [`Self::enqueue`], and `CL_OUT_OF_HOST_MEMORY` if there is no memory.
    pub fn read_bytes(self: &Arc<Self>, buffer: &Arc<Buffer>, offset: usize, len: usize) -> Result<Reading> {
        if len == 0 {
            return Err(ClError::INVALID_VALUE);
        }
        let memory = OwnedTarget::allocate(len).ok_or(ClError::OUT_OF_HOST_MEMORY)?;
        let event = self.enqueue(Operation::Read { buffer, offset, target: memory.target() }, &[])?;
        Ok(Reading { event, memory })
    }
}

impl Reading {
    /// Waits until the read has ended, and takes the bytes.
    ///
    /// # Errors
    /// Those of [`Event::wait_for_status`].
    pub fn wait(self) -> Result<Bytes> {
        self.event.wait_for_status()?;
        // SAFETY: the event has completed.
        Ok(unsafe { self.memory.into_bytes() })
    }
}

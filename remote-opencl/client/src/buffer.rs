//! Buffers and sub-buffers, and their host memory.

use crate::context::Context;
use crate::error::{ClError, Result};
use crate::host_memory::HostTarget;
use std::sync::Arc;

/// A buffer or a sub-buffer.
#[derive(Debug)]
pub struct Buffer {
    context: Arc<Context>,
    flags: u64,
    size: usize,
}

/// What a new buffer holds.
#[derive(Debug)]
pub enum Initial<'a> {
    /// Zeroes.
    Nothing,
    /// `CL_MEM_COPY_HOST_PTR`: these bytes; as many as the buffer has.
    Copy(&'a [u8]),
    /// `CL_MEM_USE_HOST_PTR`: this memory, which is also where maps of the buffer point.
    Use(HostTarget),
}

impl Buffer {
    /// A buffer of `size` bytes; `flags` are `cl_mem_flags`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for contradicting flags, `CL_INVALID_HOST_PTR` when `initial` doesn't fit the flags,
    /// `CL_INVALID_BUFFER_SIZE` for 0 or more than a device allows.
    pub fn new(
        _context: &Arc<Context>,
        _flags: u64,
        _size: usize,
        _initial: Initial<'_>,
    ) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// The region `origin..origin + size` of `parent` as a buffer (`clCreateSubBuffer`).
    ///
    /// # Errors
    /// The codes of `clCreateSubBuffer`.
    pub fn sub(_parent: &Arc<Self>, _flags: u64, _origin: usize, _size: usize) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its `cl_mem_flags`, as `CL_MEM_FLAGS` says them.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The buffer that a sub-buffer is a region of, and where it begins in there.
    pub fn parent(&self) -> Option<(&Arc<Self>, usize)> {
        None
    }

    /// `CL_MEM_HOST_PTR`: the application's address given with `CL_MEM_USE_HOST_PTR` (plus origin), else 0.
    pub fn host_address(&self) -> usize {
        0
    }

    /// `CL_MEM_MAP_COUNT`.
    pub fn map_count(&self) -> usize {
        0
    }

    /// Runs `callback` on the callback thread once the last handle is gone; those registered last run first.
    pub fn on_destroyed(&self, callback: impl FnOnce() + Send + 'static) {
        drop(callback);
    }
}

//! What is sent to a manager: messages, and chunks of large writes, whose bytes are read only when they are encoded.

use crate::base::sync::lock;
use crate::memory::host_memory::HostSource;
use fpga_protocol::v1;
use std::sync::{Arc, Mutex};

/// A message, or a part of an upload, that is sent now.
#[derive(Debug, Clone)]
pub(crate) enum Outgoing {
    /// An encodable message.
    Message(v1::ClientMessage),
    /// A chunk of an upload, whose bytes are read when it is encoded.
    Chunk(UploadChunk),
}

#[derive(Debug, Clone)]
pub(crate) struct UploadChunk {
    pub(crate) upload: Arc<Upload>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A transfer to the manager.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) transfer: u64,
    /// Length of the transfer in bytes.
    pub(crate) length: u64,
    source: Mutex<Option<HostSource>>,
}

impl Upload {
    pub(crate) fn new(transfer: u64, source: HostSource) -> Self {
        Self { transfer, length: source.len() as u64, source: Mutex::new(Some(source)) }
    }

    /// Calls `use_source` with the source, or with `None` if the upload was given up; zeroes are sent then.
    pub(crate) fn with_source<T>(&self, use_source: impl FnOnce(Option<&HostSource>) -> T) -> T {
        use_source(lock(&self.source).as_ref())
    }

    /// Drops the source. Its memory is not read after this returns.
    pub(crate) fn give_up(&self) {
        *lock(&self.source) = None;
    }
}

//! Reads in place: a blocking or large read of a buffer in shared memory without a copy in the manager. The manager gets a
//! marker in the queue's order. When the marker has completed, the client copies the bytes, and then the read's
//! event completes.
//!
//! Later commands that may change the buffer must not run before that copy is made. Each of them waits for a user
//! event that the end of the read sets. The user event is created only if there is such a command.

use crate::memory::host_memory::HostTarget;
use crate::objects::buffer::Buffer;
use crate::session::Session;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// Smallest read in place, in bytes, for which the program does not wait. A smaller one is copied twice instead, so
/// that later commands don't wait for a message.
pub(crate) const IN_PLACE_FROM: usize = 512 << 10;

/// A read in place that has not ended. Dropping it lets the commands run that wait for it.
#[derive(Debug)]
pub(crate) struct InPlaceRead {
    buffer: Arc<Buffer>,
    offset: usize,
    event: u64,
}

/// How a command accesses buffers in shared memory.
#[derive(Debug)]
pub(crate) enum BufferAccess {
    /// The command may change these buffers.
    Changes(Vec<Arc<Buffer>>),
    /// The command is a read in place of this buffer.
    Reads(Arc<Buffer>),
}

impl InPlaceRead {
    /// A read from `offset` with this event id. [`BufferAccess::order`] registers it.
    pub(crate) fn new(buffer: &Arc<Buffer>, offset: usize, event: u64) -> Self {
        Self { buffer: Arc::clone(buffer), offset, event }
    }

    /// Copies the buffer's bytes to `target`. To be called when the marker has completed.
    pub(crate) fn copy_to(&self, target: &mut HostTarget) -> bool {
        let copied = |(storage, origin): (&crate::memory::storage::Storage, usize)| {
            storage.read(origin + self.offset, target)
        };
        self.buffer.storage().is_some_and(copied)
    }
}

impl Drop for InPlaceRead {
    fn drop(&mut self) {
        let session = self.buffer.context().session();
        let Some((storage, _)) = self.buffer.storage().filter(|_| session.is_own()) else { return };
        let Some(user_event) = storage.end_read(self.event) else { return };
        // An error means that the session is lost; then no command waits any more.
        let set = v1::SetUserEvent { event: user_event, status: 0 };
        if session.cast(Method::SetUserEvent(set)).is_ok() {
            session.release_event(user_event);
        }
    }
}

impl BufferAccess {
    /// Orders a command with respect to the reads in place. The caller holds the lock of the session's state, so
    /// that this order is the order in which commands are sent.
    pub(crate) fn order(&self, session: &Session, command: &mut v1::Command) {
        match self {
            Self::Reads(buffer) => {
                if let Some((storage, _)) = buffer.storage() {
                    storage.begin_read(command.queue, command.event);
                }
            }
            Self::Changes(buffers) => {
                for buffer in buffers {
                    let Some((storage, _)) = buffer.storage() else { continue };
                    let context = buffer.context().id();
                    storage.wait_for_reads(&mut command.wait, || {
                        let event = session.new_id();
                        let create = v1::CreateUserEvent { event, context };
                        session.cast(Method::CreateUserEvent(create)).ok().map(|()| event)
                    });
                }
            }
        }
    }
}

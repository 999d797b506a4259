//! Reads in place: a buffer that lies in shared memory is read without a copy by the manager. The manager gets a marker in
//! the queue's order, and when that has completed the client copies, before the read's event completes.
//!
//! Commands that are enqueued after the read, and may change the buffer, must not run before that copy is made. Each of
//! them waits for a user event of ours that the end of the read sets; it is only made where there is such a command.

use crate::buffer::Buffer;
use crate::host_memory::HostTarget;
use crate::session::Session;
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;

/// Smaller reads are copied twice rather than have what comes after them wait for a message.
pub(crate) const IN_PLACE_FROM: usize = 512 << 10;

/// A read that has not ended. When it is dropped, what waits for it may run.
#[derive(Debug)]
pub(crate) struct InPlaceRead {
    buffer: Arc<Buffer>,
    offset: usize,
    event: u64,
}

/// What a command does with buffers that lie in shared memory.
#[derive(Debug)]
pub(crate) enum Access {
    /// It may change them.
    Changes(Vec<Arc<Buffer>>),
    /// It is a read in place.
    Reads(Arc<Buffer>),
}

impl InPlaceRead {
    /// A read from `offset`, whose event has this id; [`Access::Reads`] registers it.
    pub(crate) fn new(buffer: &Arc<Buffer>, offset: usize, event: u64) -> Self {
        Self { buffer: Arc::clone(buffer), offset, event }
    }

    /// The marker has completed: copies what the buffer holds.
    pub(crate) fn copy_to(&self, target: &mut HostTarget) -> bool {
        let copied =
            |(storage, origin): (&crate::storage::Storage, usize)| storage.read(origin + self.offset, target);
        self.buffer.storage().is_some_and(copied)
    }
}

impl Drop for InPlaceRead {
    fn drop(&mut self) {
        let session = self.buffer.context().session();
        let Some((storage, _)) = self.buffer.storage().filter(|_| session.is_own()) else { return };
        let Some(user_event) = storage.end_read(self.event) else { return };
        // An error: the session is lost, and nothing waits any more.
        let set = v1::SetUserEvent { event: user_event, status: 0 };
        if session.cast(Method::SetUserEvent(set)).is_ok() {
            session.release_event(user_event);
        }
    }
}

impl Access {
    /// Puts a command into its place among the reads; with the session's state locked, so that the order is that of the
    /// commands.
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

//! The bytes that a command takes late, and the gate that holds the command back until then. `commands/late.rs` has the
//! reasons.

use crate::cl;
use crate::error::{ClError, Result};
use crate::memory::host_bytes::HostBytes;
use crate::memory::host_memory::HostSource;
use crate::objects::context::Context;
use crate::session::host_order::WaitingBytes;
use fpga_protocol::v1::{self, call::Method};
use std::fmt::Debug;
use std::sync::Arc;

/// A command that takes its bytes late.
pub(crate) trait TakesLate: Debug + Send + Sync {
    /// Takes the bytes: copies them to the command's shared memory, or sends them. Returns false if they don't fit there.
    fn take_late(&self, bytes: HostSource) -> bool;
}

/// The bytes that a command takes late. Dropping it makes the command fail unless the bytes were taken.
#[derive(Debug)]
pub(crate) struct LateBytes {
    command: Arc<dyn TakesLate>,
    gate: Arc<Gate>,
    bytes: Option<HostBytes>,
    givers: Vec<u64>,
    status: i32,
}

/// A user event of the client, for which a command waits.
#[derive(Debug)]
pub(crate) struct Gate {
    id: u64,
    context: Arc<Context>,
}

impl LateBytes {
    /// The bytes that `command` takes; `None` if it only waits. Commands among `givers` must have given their bytes before.
    pub(crate) fn new(
        command: Arc<dyn TakesLate>,
        gate: Arc<Gate>,
        bytes: Option<HostBytes>,
        givers: Vec<u64>,
    ) -> Self {
        let status = ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST.0;
        Self { command, gate, bytes, givers, status }
    }

    /// Takes the bytes as soon as the commands before have given theirs. To be called when the marker has completed.
    pub(crate) fn marker_completed(self) {
        let session = Arc::clone(self.gate.context.session());
        session.host_order().take_when_given(Box::new(self));
    }
}

impl WaitingBytes for LateBytes {
    fn givers(&self) -> &[u64] {
        &self.givers
    }

    fn take(mut self: Box<Self>) {
        let taken = self.bytes.take().is_none_or(|bytes| self.command.take_late(bytes.packed()));
        if taken {
            self.status = cl::COMPLETE;
        }
    }
}

impl Drop for LateBytes {
    fn drop(&mut self) {
        self.gate.set(self.status);
    }
}

impl Gate {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateUserEvent(v1::CreateUserEvent { event: id, context: context.id() }))?;
        Ok(Arc::new(Self { id, context: Arc::clone(context) }))
    }

    /// Id of the user event.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    fn set(&self, status: i32) {
        let session = self.context.session();
        if session.is_own() {
            // An error means that the session is lost; then no command waits any more.
            let _ = session.cast(Method::SetUserEvent(v1::SetUserEvent { event: self.id, status }));
            session.wake_outbox();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.context.session().is_own() {
            self.context.session().release_event(self.id);
        }
    }
}

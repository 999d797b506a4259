//! Commands that take bytes of host memory when they run, as they do on a native runtime, and not when they are enqueued.
//!
//! It makes a difference in two cases: an earlier command gives bytes to the same memory, or the command waits for a user
//! event and the program writes to the memory before it sets that event. Then a marker goes before the command, and the
//! command waits for a user event of the client, its gate:
//!
//! ```text
//!  manager:  … ── marker ──────────────────── command ── …
//!                    │ completed                 ▲ gate
//!  client:           └── takes the bytes, ───────┘
//!                        into shared memory or as a transfer
//! ```
//! An unmap of memory that the manager sees has no bytes to take, but still waits until the client has copied the results
//! of earlier reads there.

use crate::cl;
use crate::error::{ClError, Result};
use crate::objects::commands::HostBytes;
use crate::objects::context::Context;
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, call::Method, command::Operation};
use std::ops::Range;
use std::sync::Arc;

/// What a command takes from host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Bytes, which the client sends.
    Bytes,
    /// Nothing: the manager sees the memory, too.
    Nothing,
}

/// When a command takes its bytes.
#[derive(Debug)]
pub(super) struct Late {
    /// The events for which the marker waits.
    wait: Vec<u64>,
    /// Commands before it that give bytes to the same memory.
    givers: Vec<u64>,
}

/// The bytes that a command takes late. Dropping it makes the command fail unless the bytes were taken.
#[derive(Debug)]
pub(crate) struct LateBytes {
    command: Arc<Event>,
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

impl Queue {
    /// Whether a command that is enqueued now must take its bytes from these addresses late; `None` if it need not.
    pub(super) fn is_late(&self, wait: &[u64], addresses: &Range<usize>, takes: Takes) -> Option<Late> {
        if wait.is_empty() && !self.something_comes_first() {
            return None;
        }
        let order = self.session().host_order();
        let barrier = if self.is_in_order() { None } else { self.progress().open_barrier() };
        let wait: Vec<u64> = wait.iter().copied().chain(barrier).collect();
        let is_held = takes == Takes::Bytes && order.is_held(self, &wait);
        let overlapping = order.givers_to(addresses);
        if !is_held && overlapping.is_empty() {
            return None;
        }
        let is_before =
            |(giver, queue): &(u64, u64)| wait.contains(giver) || (self.is_in_order() && *queue == self.id());
        let givers = overlapping.into_iter().filter(is_before).map(|(giver, _)| giver).collect();
        Some(Late { wait, givers })
    }

    /// Enqueues a command that takes its bytes late. `operation` makes the command for its event's id, notes in the uses
    /// what it needs, and returns the bytes to take.
    pub(super) fn enqueue_late(
        self: &Arc<Self>,
        command_type: u32,
        late: Late,
        mut uses: Uses,
        mut wait: Vec<u64>,
        operation: impl FnOnce(u64, &mut Uses) -> (Operation, Option<HostBytes>),
    ) -> Result<Arc<Event>> {
        let session = self.session();
        let gate = Gate::new(self.context())?;
        let (marker, id) = (session.new_id(), session.new_id());
        let (operation, bytes) = operation(id, &mut uses);
        uses.gate = Some(Arc::clone(&gate));
        wait.push(gate.id);
        let event = Event::of_command(self, id, command_type, uses);
        let late_bytes = LateBytes {
            command: Arc::clone(&event),
            gate,
            bytes,
            givers: late.givers,
            status: ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST.0,
        };
        let uses = Uses { late: Some(late_bytes), ..Uses::default() };
        self.append(marker, cl::COMMAND_MARKER, Operation::Marker(v1::Marker {}), uses, late.wait)?;
        let sent = self.append_event(&event, operation, wait)?;
        self.after(sent);
        Ok(event)
    }
}

impl LateBytes {
    /// Commands that must have given their bytes before these are taken.
    pub(super) fn givers(&self) -> &[u64] {
        &self.givers
    }

    /// Takes the bytes as soon as the commands before have given theirs. To be called when the marker has completed.
    pub(crate) fn marker_completed(self) {
        let session = Arc::clone(self.gate.context.session());
        if let Some(ready) = session.host_order().until_given(self) {
            ready.take();
        }
    }

    /// Takes the bytes, and lets the command run.
    pub(super) fn take(mut self) {
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
    fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        let session = context.session();
        let id = session.new_id();
        session.cast(Method::CreateUserEvent(v1::CreateUserEvent { event: id, context: context.id() }))?;
        Ok(Arc::new(Self { id, context: Arc::clone(context) }))
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

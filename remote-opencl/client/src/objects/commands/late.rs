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
use crate::error::Result;
use crate::memory::host_bytes::HostBytes;
use crate::objects::event::{Event, Uses};
use crate::objects::late::{Gate, LateBytes, TakesLate};
use crate::objects::queue::Queue;
use crate::objects::usm::Allocation;
use fpga_protocol::v1::{self, command::Operation};
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

/// A command that takes its bytes late, and is not enqueued yet; its marker is.
#[derive(Debug)]
pub(super) struct Gated {
    event: Arc<Event>,
    operation: Operation,
    /// Id of its gate.
    gate: u64,
}

impl Late {
    /// A command that takes its bytes when these events have completed, and the commands `givers` have given theirs.
    pub(super) fn after(wait: Vec<u64>, givers: Vec<u64>) -> Self {
        Self { wait, givers }
    }

    /// The commands before it that give bytes to the same memory.
    pub(super) fn into_givers(self) -> Vec<u64> {
        self.givers
    }
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
        let is_held = takes == Takes::Bytes && order.is_held(&wait, self.waits_for(&wait));
        let overlapping = order.givers_to(addresses);
        // A kernel may write to unified shared memory.
        let may_change = takes == Takes::Bytes && Allocation::at(addresses.start).is_some();
        if !is_held && !may_change && overlapping.is_empty() {
            return None;
        }
        let is_before =
            |(giver, queue): &(u64, u64)| wait.contains(giver) || (self.is_in_order() && *queue == self.id());
        let givers = overlapping.into_iter().filter(is_before).map(|(giver, _)| giver).collect();
        Some(Late { wait, givers })
    }

    /// Enqueues a command that takes its bytes late, as [`Self::prepare_late`] says.
    pub(super) fn enqueue_late(
        self: &Arc<Self>,
        command_type: u32,
        late: Late,
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(u64, &mut Uses) -> (Operation, Option<HostBytes>),
    ) -> Result<Arc<Event>> {
        let gated = self.prepare_late(command_type, late, uses, operation)?;
        self.enqueue_gated(gated, wait)
    }

    /// Enqueues the marker of a command that takes its bytes late. `operation` makes the command for its event's id, notes
    /// in the uses what it needs, and returns the bytes to take.
    pub(super) fn prepare_late(
        self: &Arc<Self>,
        command_type: u32,
        late: Late,
        mut uses: Uses,
        operation: impl FnOnce(u64, &mut Uses) -> (Operation, Option<HostBytes>),
    ) -> Result<Gated> {
        let session = self.session();
        let gate = Gate::new(self.context())?;
        let (marker, id) = (session.new_id(), session.new_id());
        let (operation, bytes) = operation(id, &mut uses);
        uses.gate = Some(Arc::clone(&gate));
        let event = Event::of_command(self, id, command_type, uses);
        let command: Arc<dyn TakesLate> = Arc::<Event>::clone(&event);
        let gated = Gated { event, operation, gate: gate.id() };
        let late_bytes = LateBytes::new(command, gate, bytes, late.givers);
        let uses = Uses { late: Some(late_bytes), ..Uses::default() };
        self.append(marker, cl::COMMAND_MARKER, Operation::Marker(v1::Marker {}), uses, late.wait)?;
        Ok(gated)
    }

    /// Enqueues a command whose marker is enqueued.
    pub(super) fn enqueue_gated(self: &Arc<Self>, gated: Gated, mut wait: Vec<u64>) -> Result<Arc<Event>> {
        let Gated { event, operation, gate } = gated;
        wait.push(gate);
        let sent = self.append_event(&event, operation, wait)?;
        self.after(sent);
        Ok(event)
    }

    /// The queue whose earlier commands a command with this wait list waits for, too. Without a wait list, so does a marker
    /// or a barrier of an out-of-order queue; for other commands this only errs on the safe side.
    pub(super) fn waits_for(&self, wait: &[u64]) -> Option<u64> {
        (self.is_in_order() || wait.is_empty()).then(|| self.id())
    }
}

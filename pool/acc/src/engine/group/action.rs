//! An action of a group.

use crate::error::Error;
use crate::piece::{Cut, with_zeros};
use crate::step::{Reply, Step};
use bytes::Bytes;
use fpga_accelerators::{Interface, Position};
use fpga_pool_leases::ids::StepNumber;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// An action that is submitted.
pub(crate) struct NewAction {
    pub(crate) input: Bytes,
    pub(crate) output: Arc<Reply>,
    /// The action's share of the bytes that wait or run.
    pub(crate) room: OwnedSemaphorePermit,
}

/// An action that has not ended.
pub(super) struct Action {
    pub(super) input: Bytes,
    pub(super) output: Arc<Reply>,
    /// The action as a step of the protocol, after it was prepared.
    pub(super) step: Option<Step>,
    /// How often its slot failed while it ran.
    pub(super) failures: u32,
    was_sent: bool,
    _room: OwnedSemaphorePermit,
}

impl Action {
    pub(super) fn new(new: NewAction) -> Self {
        let NewAction { input, output, room } = new;
        Self { input, output, step: None, failures: 0, was_sent: false, _room: room }
    }

    /// Makes a step of the action. Returns its bytes; `None` for an empty action out of which nothing comes, which has
    /// ended.
    pub(super) fn prepare(
        &mut self,
        number: StepNumber,
        interface: &Interface,
    ) -> Result<Option<u64>, Error> {
        if self.output.is_given_up() {
            return Err(Error::Cancelled);
        }
        let input_bytes = self.input.len() as u64;
        if self.step.is_none() {
            // The action is a whole stream.
            let Some(chunk) = Cut::default().next(interface, input_bytes, Position::Last)? else {
                self.output.send(Ok(Bytes::new()));
                return Ok(None);
            };
            let input = with_zeros(self.input.clone(), &chunk);
            let output = Arc::clone(&self.output);
            self.step = Some(Step { number, chunk, input, input_bytes, output });
        }
        Ok(Some(input_bytes))
    }

    /// The action goes to a slot. Returns whether it went to one before.
    pub(super) fn send(&mut self) -> bool {
        std::mem::replace(&mut self.was_sent, true)
    }
}

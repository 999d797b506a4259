//! What the engine has of every job.

use super::owner::OwnerId;
use crate::slot::{Done, SlotEnd};
use crate::status::Where;
use fpga_pool_api::client::{SealedTicket, Waits};
use fpga_pool_leases::client::{Job, Phase, Repetition};
use fpga_pool_leases::ids::{JobUuid, StepNumber};
use fpga_pool_leases::lease::Wanted;
use fpga_pool_leases::rules::Rules;

/// A job.
pub(super) struct Entry {
    pub(super) machine: Job,
    pub(super) owner: OwnerId,
    ticket_code: Option<[u8; 32]>,
    /// What the latest ended step has left, until the machine has it delivered.
    done: Option<Done>,
    /// Why the job waits, for people.
    waits: String,
}

impl Entry {
    pub(super) fn new(job: JobUuid, wanted: Wanted, owner: OwnerId) -> Self {
        let machine = Job::new(job, wanted, Repetition::Forbidden, Rules::default());
        let waits = "no broker has answered yet".to_owned();
        Self { machine, owner, ticket_code: None, done: None, waits }
    }

    pub(super) fn ticket_code(&self) -> Option<[u8; 32]> {
        self.ticket_code
    }

    /// The broker has put the job into its queue.
    pub(super) fn has_ticket(&mut self, sealed: &SealedTicket) {
        // The machine takes a ticket only if it has none.
        if self.machine.ticket().is_none() {
            self.ticket_code = Some(sealed.code);
        }
        self.waits("the broker looks for a slot".to_owned());
    }

    /// The job waits for this reason.
    pub(super) fn waits(&mut self, why: String) {
        self.waits = why;
    }

    /// The job waits in the broker's queue.
    pub(super) fn waits_in_queue(&mut self, waits: &Waits) {
        let Waits { ahead, reason, .. } = waits;
        self.waits(match ahead {
            0 => reason.clone(),
            1 => format!("{reason}; one job comes before"),
            _ => format!("{reason}; {ahead} jobs come before"),
        });
    }

    /// The job's slot is lost.
    pub(super) fn lost_slot(&mut self, end: &SlotEnd) {
        self.waits(match end {
            SlotEnd::Gone => "the slot was given to others before this client took it".to_owned(),
            SlotEnd::Lost(why) => format!("the former board was lost ({why})"),
            SlotEnd::Failed(why) => format!("the former board failed ({why})"),
        });
    }

    /// A step has ended under some lease. If that is the present one, the machine has it delivered at once.
    pub(super) fn done(&mut self, done: Done) {
        self.done = Some(done);
    }

    /// What the step has left that is to be delivered.
    pub(super) fn take_done(&mut self, step: StepNumber) -> Option<Done> {
        self.done.take_if(|done| done.step == step)
    }

    /// Where the job is.
    pub(super) fn at(&self) -> Where {
        match self.machine.phase() {
            Phase::Waiting => Where::Waiting(self.waits.clone()),
            Phase::Offered { .. } => Where::Attaching,
            Phase::Running { .. } => Where::Running,
            Phase::Ended(_) => Where::Ended,
        }
    }
}

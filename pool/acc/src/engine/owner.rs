//! What the jobs of an engine are for.

use crate::slot::{Done, SlotEnd, Work};
use crate::status::Where;
use crate::step::Step;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_api::client::Cancelled;
use fpga_pool_leases::client::{End, Repetition};
use fpga_pool_leases::ids::{GroupUuid, JobUuid, StepNumber};
use std::sync::Arc;

/// Number of failures in a row after which a job is given up: another board may do better, once or twice.
pub(super) const MAX_FAILURES: u32 = 3;

/// Whose job it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerId {
    /// The job is one by itself.
    Run(JobUuid),
    /// The job holds one of the slots of a group.
    Group(GroupUuid),
}

/// What a job is for: it has the data of the job's steps, and tells the program what happens. The engine has the job's
/// machine.
pub(super) trait Owner {
    /// The broker has put the job into its queue, and tells the interface of the accelerator if the library has it. Returns
    /// whether steps may run again.
    fn queued(&mut self, interface: Option<&str>, now: MonotonicTime) -> Repetition;
    /// The broker gives a job no slot.
    fn refused(&mut self, job: JobUuid, cancelled: &Cancelled);
    /// Whether the jobs can't go on, for a reason that no other slot mends.
    fn is_wrong(&self) -> bool;
    /// What a slot with this bitstream is to do; `None` before the accelerator is known.
    fn work(&self, digest: Digest) -> Option<Work>;
    /// A job attaches to a slot of a node.
    fn takes_slot_of(&mut self, node: &Arc<str>);
    /// A step that a job sends to its slot.
    fn send(&mut self, job: JobUuid, step: StepNumber, now: MonotonicTime) -> Option<Step>;
    /// A step of a job has ended: its output is the program's.
    fn deliver(&mut self, job: JobUuid, done: Done, now: MonotonicTime);
    /// The slot of a job is lost.
    fn lost_slot(&mut self, job: JobUuid, end: &SlotEnd);
    /// Shows where a job is.
    fn show(&mut self, job: JobUuid, at: Where, now: MonotonicTime);
    /// A job has ended.
    fn ended(&mut self, job: JobUuid, end: End, now: MonotonicTime);
}

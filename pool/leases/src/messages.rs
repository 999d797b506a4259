//! The protocol's messages, one enum for each direction of each kind of connection.
//!
//! A connection keeps the order of its messages and loses those that are under way when it is cut.

use crate::ids::{Attempt, Incarnation, JobUuid, LeaseId, StepNumber, Term};
use crate::lease::{Endpoint, Lease, Ticket, Usage, Wanted};
use fpga_board::slots::SlotIndex;
use fpga_core::units::Millis;

/// From a manager to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ManagerToBroker {
    /// The first message of each connection.
    Register {
        /// The manager's life.
        incarnation: Incarnation,
        /// The highest term that the manager has accepted in this life.
        max_term: Term,
        /// Where clients find the manager.
        endpoint: Endpoint,
        /// All lent slots, by index.
        slots: Vec<SlotStatus>,
    },
    /// A slot has changed.
    Slot(SlotReport),
    /// The bitstream of the lease is loaded: the client may attach.
    Prepared {
        /// The lease.
        lease: LeaseId,
    },
    /// There is no such lease, and there will be none. The slot's report follows, if the slot exists.
    Refused {
        /// The lease.
        lease: LeaseId,
        /// The reason.
        why: Refusal,
    },
}

/// From the broker to a manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BrokerToManager {
    /// Asks for a lease: the slot is to be reserved and the bitstream loaded.
    Prepare {
        /// The broker's term.
        term: Term,
        /// The lease.
        lease: Lease,
        /// Time between two reports of what the lease has used while it is held; `None`: no such reports.
        usage_every: Option<Millis>,
    },
    /// Asks for the end of a lease: its client finishes the current step.
    Recall {
        /// The lease.
        lease: LeaseId,
    },
}

/// From a client to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientToBroker {
    /// The job has no lease and wants one.
    Want {
        /// The job.
        job: JobUuid,
        /// What it asks for.
        wanted: Wanted,
        /// The broker's word for the first arrival, if the client has it.
        ticket: Option<Ticket>,
        /// Which of the client's connections to brokers this is. A Want of a former connection may arrive late, and
        /// must not bind the job to that connection.
        attempt: Attempt,
    },
    /// The job wants no lease any more.
    Cancel {
        /// The job.
        job: JobUuid,
    },
}

/// From the broker to a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BrokerToClient {
    /// The answer to a Want.
    Ticket(Ticket),
    /// A slot is ready for the job. With the Offer the broker forgets the job: a client that can't use the lease sends
    /// a Want.
    Offer {
        /// The job.
        job: JobUuid,
        /// The lease.
        lease: LeaseId,
        /// The manager.
        endpoint: Endpoint,
    },
    /// The job won't get a slot.
    Cancel {
        /// The job.
        job: JobUuid,
        /// The reason.
        why: CancelCause,
    },
}

/// From a client to a manager. The steps' commands and data go by the remote OpenCL protocol; here only their numbers
/// matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientToManager {
    /// Takes the slot, in the handshake of the session.
    Attach {
        /// The lease.
        lease: LeaseId,
    },
    /// Runs a step.
    Step {
        /// The lease.
        lease: LeaseId,
        /// The step.
        step: StepNumber,
    },
    /// Gives the slot up.
    Release {
        /// The lease.
        lease: LeaseId,
    },
}

/// From a manager to a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ManagerToClient {
    /// The client holds the slot.
    Attached {
        /// The lease.
        lease: LeaseId,
    },
    /// There is no such lease, or its time to attach is over.
    Gone {
        /// The lease.
        lease: LeaseId,
    },
    /// The client is to give the slot up after the steps that have started.
    Yield {
        /// The lease.
        lease: LeaseId,
    },
    /// A step has ended; its output is the client's.
    StepDone {
        /// The lease.
        lease: LeaseId,
        /// The step.
        step: StepNumber,
    },
    /// A step came after the Yield: it does not run under this lease.
    StepRefused {
        /// The lease.
        lease: LeaseId,
        /// The step.
        step: StepNumber,
    },
}

/// The state of a slot, as a manager tells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotStatus {
    /// No lease has the slot, and no task runs in it.
    Free,
    /// A lease has the slot; its client has not attached yet.
    Reserved(Lease),
    /// A client has attached.
    Held(Lease, Activity),
    /// The lease has ended; its tasks have not.
    Draining(Lease),
    /// The slot takes no lease until a probe succeeds.
    Bad,
}

/// Whether a held slot is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A task runs, or has run within the last [`IDLE`](crate::timing::IDLE).
    Busy,
    /// No task has run for [`IDLE`](crate::timing::IDLE).
    Idle,
}

/// A change of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotReport {
    /// Number of the report in its connection, from 0.
    pub seq: u64,
    /// The slot.
    pub slot: SlotIndex,
    /// Its state now.
    pub status: SlotStatus,
    /// Why it changed.
    pub why: SlotCause,
    /// What the slot's present or last lease has used.
    pub usage: Usage,
}

/// Why a slot changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotCause {
    /// The client attached.
    Attached,
    /// The client did not attach in time.
    NotAttached,
    /// The client released the lease.
    Released,
    /// The client's connection ended.
    Closed,
    /// The client was silent.
    Silent,
    /// The broker recalled the lease.
    Recalled,
    /// The client did not give the slot up in time.
    YieldOverdue,
    /// The client broke the protocol.
    Misbehaved,
    /// No task has run for a second.
    Idle,
    /// A task runs again.
    Busy,
    /// The last task has ended.
    Drained,
    /// The tenant's process was killed and reaped.
    Killed,
    /// The tenant's process could not be killed and reaped in time.
    NotReaped,
    /// A bitstream was not loaded.
    LoadFailed,
    /// A probe of a bad slot succeeded.
    Probed,
    /// A Prepare was refused: the slot is as it was.
    Unchanged,
    /// Steps have ended: the slot is as it was, and what its lease has used is not.
    Used,
}

/// Why a manager refuses a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The manager has accepted a later term.
    #[error("the manager has accepted term {}, which is later", .max_term.0)]
    OldTerm {
        /// The highest term that the manager has accepted.
        max_term: Term,
    },
    /// The lease is for another life of the manager.
    #[error("the lease is for another incarnation of the manager")]
    OtherIncarnation,
    /// The manager lends no such slot.
    #[error("the manager lends no such slot")]
    NoSuchSlot,
    /// Another lease has the slot, or the slot is bad.
    #[error("the slot is not free")]
    NotFree,
    /// The lease has ended already.
    #[error("the lease has ended")]
    Ended,
    /// The bitstream failed to load three times in a row.
    #[error("the bitstream failed to load in this slot several times")]
    BadBitstream,
    /// The bitstream failed to load.
    #[error("the bitstream failed to load")]
    LoadFailed,
    /// There is no file of the bitstream at the manager.
    #[error("the manager has no file of the bitstream")]
    NoFile,
    /// The broker recalled the lease during the load.
    #[error("the broker recalled the lease during the load")]
    Recalled,
}

/// Why a job won't get a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CancelCause {
    /// No slot of the pool fits.
    #[error("no slot of the pool fits the job")]
    NoFittingSlot,
    /// Too many jobs wait.
    #[error("too many jobs wait")]
    Full,
    /// The tenant's quota is used up.
    #[error("the tenant's quota is used up")]
    Quota,
    /// Another tenant's job has this id.
    #[error("another tenant's job has this id")]
    Foreign,
    /// The other jobs of the job's bundle did not come, or are of another kind.
    #[error("the other jobs of the bundle did not come, or are of another kind")]
    Incomplete,
}

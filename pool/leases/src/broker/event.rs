//! What a broker takes in and gives out.

use crate::ids::{ConnectionId, JobUuid, LeaseId, ManagerId, Term};
use crate::lease::{Lease, Usage, Wanted};
use crate::messages::{BrokerToClient, BrokerToManager, ClientToBroker, ManagerToBroker, Refusal, SlotCause};
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, WallTime};

/// What happens to a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The Kubernetes Lease has no holder, or this broker.
    MayLead {
        /// The term in the Lease.
        term: Term,
    },
    /// The answer to [`Action::SwapTerm`].
    Swapped(SwapOutcome),
    /// Another broker holds the Kubernetes Lease, or this one could not renew it in time.
    LeaseLost,
    /// A message of a manager, whose identity is proved.
    Manager(ConnectionId, ManagerId, ManagerToBroker),
    /// A manager's connection has ended.
    ManagerClosed(ConnectionId),
    /// A message of a client, whose tenant is proved.
    Client(ConnectionId, Tenant, ClientToBroker),
    /// A client's connection has ended.
    ClientClosed(ConnectionId),
}

/// Whether the term in the Kubernetes Lease was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SwapOutcome {
    /// The Lease has the new term and this broker as its holder.
    Done,
    /// The Lease had another term than the expected one, or could not be written.
    Failed,
}

/// What the broker's owner must do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Replace the term in the Kubernetes Lease, with this broker as its holder, if it is the expected one. Only the
    /// answer to the latest of these counts.
    SwapTerm {
        /// The term that the Lease must have.
        expected: Term,
        /// The new term.
        next: Term,
    },
    /// Send a message to a manager.
    ToManager(ConnectionId, BrokerToManager),
    /// Send a message to a client.
    ToClient(ConnectionId, BrokerToClient),
    /// Close a connection, after the messages before it.
    Close(ConnectionId),
    /// Tell the policy.
    Notice(Notice),
}

/// What a policy wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The broker is active: it grants.
    Active,
    /// The broker is not active any more. Its jobs and slots are forgotten.
    Inactive,
    /// A job waits.
    Waiting(JobUuid),
    /// A job does not wait any more.
    Left(JobUuid),
    /// All slots of a manager are told anew.
    Registered(ManagerId),
    /// A manager is lost, and its slots with it.
    Lost(ManagerId),
    /// A slot has changed.
    Slot {
        /// The manager.
        manager: ManagerId,
        /// The slot.
        slot: SlotIndex,
        /// Why.
        why: SlotCause,
        /// What its present or last lease has used.
        usage: Usage,
    },
    /// A manager refused a lease; its job waits again.
    Refused {
        /// The manager.
        manager: ManagerId,
        /// The slot.
        slot: SlotIndex,
        /// Why.
        why: Refusal,
    },
}

/// A decision: a waiting job gets a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The job.
    pub job: JobUuid,
    /// The manager.
    pub manager: ManagerId,
    /// The slot.
    pub slot: SlotIndex,
    /// The bitstream that the job's accelerator has for the slot.
    pub digest: Digest,
    /// An id for the lease: 128 random bits.
    pub lease: LeaseId,
    /// Time between two reports of what the lease has used while it is held; `None`: no such reports.
    pub usage_every: Option<Millis>,
}

/// Why a decision can't be carried out. It changes nothing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum GrantError {
    /// The broker is not active, or listens still.
    #[error("the broker does not grant now")]
    NotActive,
    /// The job does not wait.
    #[error("job {0:?} does not wait")]
    NotWaiting(JobUuid),
    /// The job's client is not connected.
    #[error("the client of job {0:?} is not connected")]
    Detached(JobUuid),
    /// The slot is not free, as far as the broker knows.
    #[error("slot {} of manager {} is not free", slot.0, manager.0)]
    NotFree {
        /// The manager.
        manager: ManagerId,
        /// The slot.
        slot: SlotIndex,
    },
    /// The slot has refused the bitstream, which failed to load there, within the last minute.
    #[error("the bitstream failed to load in slot {} of manager {}", slot.0, manager.0)]
    BadBitstream {
        /// The manager.
        manager: ManagerId,
        /// The slot.
        slot: SlotIndex,
    },
}

/// A job that waits for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingJob<'a> {
    /// The job.
    pub id: JobUuid,
    /// Its tenant.
    pub tenant: &'a Tenant,
    /// What it asks for.
    pub wanted: &'a Wanted,
    /// When it arrived first.
    pub first_arrival: WallTime,
    /// The connection of its client; `None`: it is offered nothing.
    pub connection: Option<ConnectionId>,
    /// Whether it has been granted a slot that is being prepared.
    pub preparing: Option<LeaseId>,
}

/// What the broker knows of a slot, from the manager's present connection alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotRecord {
    /// A lease may be prepared.
    Free,
    /// A Prepare is under way; the answer is not there.
    Preparing(Lease),
    /// A lease has the slot.
    Leased {
        /// The lease.
        lease: Lease,
        /// How far it is.
        stage: LeaseStage,
    },
    /// The lease was refused; the slot's report is under way.
    Unknown,
    /// The slot takes no lease.
    Bad,
}

/// How far a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseStage {
    /// No client has attached.
    Reserved,
    /// A client has attached, and works.
    Busy,
    /// A client has attached, and has had no task for a second.
    Idle,
    /// The client is gone, its tasks are not.
    Draining,
}

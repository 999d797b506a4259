//! A lease, and what a job asks for.

use crate::ids::{BundleUuid, GroupUuid, Incarnation, JobUuid, LeaseId};
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, WallTime};
use std::sync::Arc;

/// The right of one job to use one slot of one manager, until either gives the slot up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The secret id.
    pub id: LeaseId,
    /// The life of the manager in which the lease counts.
    pub incarnation: Incarnation,
    /// The slot.
    pub slot: SlotIndex,
    /// The job.
    pub job: JobUuid,
    /// The tenant whose job it is.
    pub tenant: Tenant,
    /// The only bitstream that the job may use.
    pub digest: Digest,
    /// What the job does.
    pub work: Work,
    /// First arrival of the job. It is in the lease for the brokers that come later: the time of a group counts from it.
    pub first_arrival: WallTime,
}

/// What a job does with a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// One job processes so many bytes (P).
    Run {
        /// Remaining bytes.
        bytes: u64,
    },
    /// The slot is one of those of a group with a goal (Q).
    Group(Group),
}

/// A group: as many jobs as it may have slots, which share a queue of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// The group.
    pub id: GroupUuid,
    /// What its jobs reach together.
    pub goal: Goal,
    /// Minimum number of slots.
    pub least: u32,
    /// Maximum number of slots.
    pub most: u32,
}

/// The goal of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal {
    /// So many actions are done within a time.
    Deadline {
        /// Number of actions.
        actions: u64,
        /// Time from the job's first arrival.
        within: Millis,
    },
    /// A number of actions per hour for as long as the group lives.
    Throughput {
        /// Actions per hour.
        actions_per_hour: u64,
    },
}

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Name of the accelerator.
    pub accelerator: Arc<str>,
    /// What the job does.
    pub work: Work,
    /// The jobs with which the job gets its slot; `None`: the job waits by itself.
    pub bundle: Option<Bundle>,
}

/// Jobs of one tenant with one accelerator that get their slots at the same time or not at all. With its Offer a job
/// leaves the bundle: from then on it is a job as every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// The bundle.
    pub id: BundleUuid,
    /// Number of its jobs.
    pub size: u32,
}

/// The broker's word for when a job arrived first. Its place in the queue goes by that, also after a lease was lost or
/// with another broker.
///
/// The services seal tickets with a message authentication code when they write them, and drop tickets without a valid
/// one when they read them: to this crate tickets are true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The job.
    pub job: JobUuid,
    /// First arrival, on the wall clock of the broker that was asked first. Brokers have no other clock in common.
    pub first_arrival: WallTime,
}

/// Where and as whom a manager takes the connections of clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Network address.
    pub address: Arc<str>,
    /// SHA-256 of the public key of the manager's TLS certificate; `None` without TLS.
    pub key: Option<[u8; 32]>,
    /// Path of the Unix socket for clients on the manager's node; `None` if there is none.
    pub socket: Option<Arc<str>>,
}

/// What a lease has used, as its manager counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Bytes that ended steps took in.
    pub bytes: u64,
    /// Number of ended steps that ran kernels.
    pub actions: u64,
    /// Time for which these steps occupied the slot.
    pub busy: Millis,
}

impl Usage {
    /// Adds what one more step used.
    pub fn add(&mut self, step: Self) {
        self.bytes = self.bytes.saturating_add(step.bytes);
        self.actions = self.actions.saturating_add(step.actions);
        self.busy += step.busy;
    }
}

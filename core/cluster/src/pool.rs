//! The boards of a cluster as one pool of slots: which waiting job gets a slot that becomes free (P-4).
//!
//! [`policy`] decides, [`state`] has the pool, [`thresholds`] sorts jobs into priority queues, and [`model`] computes
//! which thresholds suit a distribution of job sizes ([`sizes`], P-5). The module does not run jobs, move their data
//! or know how long they take. It ignores the time to load a bitstream: loading takes microseconds to milliseconds,
//! and the jobs of a pool take much longer.

pub mod model;
pub mod policy;
pub mod sizes;
pub mod state;
pub mod thresholds;

use std::time::Duration;

/// Id of a job, unique while the pool lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Index of a node in the list that the pool was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

/// Number of a slot of a node, counted over all boards of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(pub u32);

/// Number of bytes that a job processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A job that needs a slot (P-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Id of the job.
    pub id: JobId,
    /// Home of the job: the node that has its data.
    pub home: NodeIndex,
    /// Size of the data.
    pub size: Bytes,
}

/// Whether the home of a job has slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The home has slots in the pool.
    Pooled,
    /// The home has no slots: every slot is remote for its jobs.
    Bare,
}

/// Whether a job runs at its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// At home: the data crosses no network.
    Local,
    /// On another node.
    Remote,
}

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The waiting job.
    pub job: Job,
    /// Whether the job's home has slots.
    pub home: Home,
    /// Time of the job's arrival, on the caller's clock.
    pub since: Duration,
    /// Number of free slots that skipped the job because they were remote.
    pub skipped: u32,
}

/// A job that may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The job.
    pub job: JobId,
    /// Node of the slot.
    pub node: NodeIndex,
    /// Slot that the job gets.
    pub slot: SlotNumber,
    /// Whether the node is the job's home.
    pub place: Place,
}

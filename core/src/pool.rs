//! The boards of a cluster as one pool of slots: which waiting job gets a slot that frees (P-4).
//!
//! [`policy`] decides, [`state`] keeps the pool that it decides over, [`thresholds`] sorts jobs into priority queues,
//! and [`model`] reckons which thresholds suit a distribution of job sizes ([`sizes`], P-5). Nothing here runs a job,
//! moves its data or knows how long it takes. What a slot has to load for a job does not count here: that takes
//! microseconds to milliseconds, the jobs of a pool take much longer.

pub mod model;
pub mod policy;
pub mod sizes;
pub mod state;
pub mod thresholds;

use std::time::Duration;

/// A job, unique while the pool lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A node of the pool by its place in the list that the pool was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

/// A slot of a node, over all its boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(pub u32);

/// Bytes that a job wants processed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A job that wants a slot (P-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// Where its data lies: its home.
    pub home: NodeIndex,
    /// How much of it.
    pub size: Bytes,
}

/// Whether a node has slots of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// It has.
    Pooled,
    /// It has none: every slot is remote for its jobs.
    Bare,
}

/// Where a job runs, seen from its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// At home: its data crosses no network.
    Local,
    /// On another node.
    Remote,
}

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The job.
    pub job: Job,
    /// What its home has.
    pub home: Home,
    /// Since when.
    pub since: Duration,
    /// How often a slot that freed passed it over for want of locality.
    pub skipped: u32,
}

/// A job that may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Which.
    pub job: JobId,
    /// On which node.
    pub node: NodeIndex,
    /// In which of its slots.
    pub slot: SlotNumber,
    /// Local or remote.
    pub place: Place,
}

//! Policies of the pool: FIFO, SJF, resource-aware, workload-aware, and both together (P-4).
//!
//! A policy is an order of the waiting jobs and a rule which of them fit a slot. Decisions are pure functions: the
//! pool is an argument, and the answer names the job to start and the jobs that were skipped.

use super::thresholds::Thresholds;
use super::{Bytes, Home, Job, JobId, NodeIndex, Place, Waiting};
use std::num::NonZeroU32;
use std::time::Duration;

/// A scheduling policy of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPolicy {
    /// Order of the waiting jobs.
    pub order: Order,
    /// Rule which jobs may get a slot.
    pub fit: Fit,
}

/// The order of waiting jobs. Equal jobs are ordered by arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// By arrival.
    Arrival,
    /// By size, the smallest first.
    Size,
    /// By priority queue.
    Queues(Thresholds),
}

/// The rule which of the waiting jobs may get a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The first job, wherever its home is.
    Anyone(IdleChoice),
    /// The first job whose home is the slot's node: the slots are not pooled.
    LocalOnly,
    /// By the jobs' homes, their waiting times and the number of remote jobs on the node.
    ResourceAware(ResourceAwareRules),
}

/// Which of several idle slots an arriving job gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleChoice {
    /// The slot that has been idle longest, whatever the job's home.
    LongestIdle,
    /// A slot at home, else one on the node with the fewest remote jobs.
    HomeFirst,
}

/// Parameters of the resource-aware policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceAwareRules {
    /// C: maximum number of remote jobs on a node.
    pub contention: NonZeroU32,
    /// D: number of skips after which a job has waited long enough to run remotely.
    pub skips: u32,
    /// W: waiting time after which a job has waited long enough to run remotely.
    pub patience: Patience,
    /// Whether a remote job may start before a local one.
    pub preference: Preference,
    /// What becomes of a slot that no job fits.
    pub nothing_fits: NothingFits,
}

/// W: the time that a job waits for a slot at home, in nanoseconds per megabyte (10⁶ bytes) of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(pub u64);

/// Which of the jobs that fit comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// The first in the policy's order (Algorithm 1 of the paper). No job starves.
    Order,
    /// The first local job, else the first remote one. A busy node may starve the jobs of others.
    LocalFirst,
}

/// What becomes of a slot that no job fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NothingFits {
    /// The slot stays idle (resource-aware).
    KeepIdle,
    /// The first waiting job gets the slot, even beyond C (workload-and-resource-aware).
    TakeFirst,
}

/// An idle slot that is offered to the waiting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Node of the slot.
    pub node: NodeIndex,
    /// Number of remote jobs that run on the node.
    pub remote_running: u32,
}

/// The rank of a job in the policy's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    key: u64,
    arrival: u64,
}

/// The decision about an offered slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The job that gets the slot, with its rank and whether it runs at home; `None` if the slot stays idle.
    pub pick: Option<(Rank, JobId, Place)>,
    /// Ranks of the jobs before it that were skipped because the slot is remote for them.
    pub skipped: Vec<Rank>,
}

impl PoolPolicy {
    /// First in, first out.
    #[must_use]
    pub fn fifo() -> Self {
        Self { order: Order::Arrival, fit: Fit::Anyone(IdleChoice::LongestIdle) }
    }

    /// Shortest job first.
    #[must_use]
    pub fn shortest_first() -> Self {
        Self { order: Order::Size, fit: Fit::Anyone(IdleChoice::LongestIdle) }
    }

    /// Resource-aware (RA).
    #[must_use]
    pub fn resource_aware(rules: ResourceAwareRules) -> Self {
        let rules = ResourceAwareRules { nothing_fits: NothingFits::KeepIdle, ..rules };
        Self { order: Order::Arrival, fit: Fit::ResourceAware(rules) }
    }

    /// Workload-aware (WA).
    #[must_use]
    pub fn workload_aware(thresholds: Thresholds) -> Self {
        Self { order: Order::Queues(thresholds), fit: Fit::Anyone(IdleChoice::LongestIdle) }
    }

    /// Workload-and-resource-aware (WRA).
    #[must_use]
    pub fn workload_and_resource_aware(thresholds: Thresholds, rules: ResourceAwareRules) -> Self {
        let rules = ResourceAwareRules { nothing_fits: NothingFits::TakeFirst, ..rules };
        Self { order: Order::Queues(thresholds), fit: Fit::ResourceAware(rules) }
    }

    /// Shortest job first on each node without pooling: the paper's baseline.
    #[must_use]
    pub fn local_shortest_first() -> Self {
        Self { order: Order::Size, fit: Fit::LocalOnly }
    }

    /// The rank of a job; `arrival` is the number of the arrival.
    #[must_use]
    pub fn rank(&self, job: &Job, arrival: u64) -> Rank {
        let key = match &self.order {
            Order::Arrival => 0,
            Order::Size => job.size.0,
            Order::Queues(thresholds) => thresholds.queue_of(job.size),
        };
        Rank { key, arrival }
    }
}

impl Patience {
    /// The time that a job of this size waits for a slot at home.
    #[must_use]
    pub fn limit(self, size: Bytes) -> Duration {
        let nanos = u128::from(self.0) * u128::from(size.0) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl ResourceAwareRules {
    /// Whether a job has waited long enough to run remotely.
    #[must_use]
    pub fn waited_long(&self, waiting: &Waiting, now: Duration) -> bool {
        waiting.skipped >= self.skips
            || now.saturating_sub(waiting.since) >= self.patience.limit(waiting.job.size)
    }
}

/// Decides which job gets the offered slot. `waiting` must be in the policy's order.
pub fn decide<'a>(
    fit: &Fit,
    mut waiting: impl Iterator<Item = (Rank, &'a Waiting)>,
    offer: Offer,
    now: Duration,
) -> Decision {
    let pick = match fit {
        Fit::Anyone(_) => waiting.next(),
        Fit::LocalOnly => waiting.find(|(_, one)| one.job.home == offer.node),
        Fit::ResourceAware(rules) => return resource_aware(rules, waiting, offer, now),
    };
    Decision { pick: pick.map(|(rank, one)| picked(rank, one, offer)), skipped: Vec::new() }
}

fn resource_aware<'a>(
    rules: &ResourceAwareRules,
    waiting: impl Iterator<Item = (Rank, &'a Waiting)>,
    offer: Offer,
    now: Duration,
) -> Decision {
    let takes_remote = offer.remote_running < rules.contention.get();
    let mut first = None;
    let mut first_remote = None;
    let mut skipped = Vec::new();
    for (rank, one) in waiting {
        first.get_or_insert((rank, one));
        if one.job.home == offer.node {
            return Decision { pick: Some(picked(rank, one, offer)), skipped };
        }
        if !takes_remote || first_remote.is_some() {
            continue;
        }
        if one.home == Home::Bare || rules.waited_long(one, now) {
            if rules.preference == Preference::Order {
                return Decision { pick: Some(picked(rank, one, offer)), skipped };
            }
            first_remote = Some((rank, one));
        } else {
            skipped.push(rank);
        }
    }
    let pick = match rules.nothing_fits {
        NothingFits::KeepIdle => first_remote,
        NothingFits::TakeFirst => first_remote.or(first),
    };
    Decision { pick: pick.map(|(rank, one)| picked(rank, one, offer)), skipped }
}

fn picked(rank: Rank, one: &Waiting, offer: Offer) -> (Rank, JobId, Place) {
    let place = if one.job.home == offer.node { Place::Local } else { Place::Remote };
    (rank, one.job.id, place)
}

#[cfg(test)]
mod tests;

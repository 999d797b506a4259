//! Which waiting job a slot gets: FIFO, SJF, resource-aware, workload-aware, and both together (P-4).
//!
//! A policy is an order of the waiting jobs and a rule which of them fit a slot. Pure: the pool is an argument, the
//! answer says what to start and which jobs were passed over.

use super::thresholds::Thresholds;
use super::{Bytes, Home, Job, JobId, NodeIndex, Place, Waiting};
use std::num::NonZeroU32;
use std::time::Duration;

/// How a pool is scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Who is first.
    pub order: Order,
    /// Who may have a slot.
    pub fit: Fit,
}

/// The order of waiting jobs; equals stand in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    Arrival,
    /// The smallest first.
    Size,
    /// By priority queues.
    Queues(Thresholds),
}

/// Which of the waiting jobs may have a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The first, wherever its home is.
    Anyone(IdleChoice),
    /// The first whose home is the slot's node: no pool at all.
    LocalOnly,
    /// By where jobs come from, how long they waited, and how many remote ones the node serves.
    ResourceAware(Rules),
}

/// Which of several idle slots a job gets that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleChoice {
    /// The one that has been idle longest: nobody looks where the job comes from.
    LongestIdle,
    /// One at home, else one on the node with the fewest remote jobs.
    HomeFirst,
}

/// Parameters of the resource-aware policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// C: a node runs no more remote jobs than these.
    pub contention: NonZeroU32,
    /// D: a job passed over so often has waited long.
    pub skips: u32,
    /// W: a job has waited long after this much time for its size.
    pub patience: Patience,
    /// Whether a job from far may be before one of the node's own.
    pub preference: Preference,
    /// What to do with a slot that no job fits.
    pub nothing_fits: NothingFits,
}

/// W: how long a job waits for a slot at home, in nanoseconds per megabyte (10⁶ bytes) of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(pub u64);

/// Who comes first among the jobs that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// The first in the order (the paper's Algorithm 1): nobody starves.
    Order,
    /// The first of the slot's own node, and only then one from elsewhere: a busy node may starve the others.
    LocalFirst,
}

/// What to do with a slot that no job fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NothingFits {
    /// It stays idle (resource-aware).
    KeepIdle,
    /// The first waiting job gets it, and C does not count (workload-and-resource-aware).
    TakeFirst,
}

/// A slot on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Of which node.
    pub node: NodeIndex,
    /// How many remote jobs run there.
    pub remote_running: u32,
}

/// A job's place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    key: u64,
    arrival: u64,
}

/// What becomes of a slot on offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The job that gets it, and where that is for it; nobody: it stays idle.
    pub pick: Option<(Rank, JobId, Place)>,
    /// Jobs before that one that were passed over for want of locality, by rank.
    pub skipped: Vec<Rank>,
}

impl Policy {
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
    pub fn resource_aware(rules: Rules) -> Self {
        let rules = Rules { nothing_fits: NothingFits::KeepIdle, ..rules };
        Self { order: Order::Arrival, fit: Fit::ResourceAware(rules) }
    }

    /// Workload-aware (WA).
    #[must_use]
    pub fn workload_aware(thresholds: Thresholds) -> Self {
        Self { order: Order::Queues(thresholds), fit: Fit::Anyone(IdleChoice::LongestIdle) }
    }

    /// Workload-and-resource-aware (WRA).
    #[must_use]
    pub fn workload_and_resource_aware(thresholds: Thresholds, rules: Rules) -> Self {
        let rules = Rules { nothing_fits: NothingFits::TakeFirst, ..rules };
        Self { order: Order::Queues(thresholds), fit: Fit::ResourceAware(rules) }
    }

    /// Every node for itself, the shortest job first: what the paper compares the pool with.
    #[must_use]
    pub fn local_shortest_first() -> Self {
        Self { order: Order::Size, fit: Fit::LocalOnly }
    }

    /// The place in the order of a job that came as the `arrival`-th.
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
    /// How long a job of that size waits for a slot at home.
    #[must_use]
    pub fn limit(self, size: Bytes) -> Duration {
        let nanos = u128::from(self.0) * u128::from(size.0) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Rules {
    /// Whether a job has waited long.
    #[must_use]
    pub fn waited_long(&self, waiting: &Waiting, now: Duration) -> bool {
        waiting.skipped >= self.skips
            || now.saturating_sub(waiting.since) >= self.patience.limit(waiting.job.size)
    }
}

/// Decides over a slot on offer. `waiting` is in the policy's order.
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
    rules: &Rules,
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

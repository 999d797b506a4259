//! Policies of the pool: FIFO, SJF, resource-aware, workload-aware, and both together (P-4).
//!
//! A policy is an order of the waiting jobs, a rule which of them fit a slot, and a rule against starvation.

use super::thresholds::Thresholds;
use super::{Arrival, Bytes, Job, JobId};
use std::num::NonZeroU32;
use std::time::Duration;

/// A scheduling policy of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPolicy {
    /// Order of the waiting jobs.
    pub order: Order,
    /// Rule which jobs may get a slot.
    pub fit: Fit,
    /// Rule against starvation.
    pub aging: Aging,
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

/// Parameters of the resource-aware policy. D and W bound the wait for locality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceAwareRules {
    /// C: maximum number of remote jobs on a node.
    pub contention: Contention,
    /// D: number of skips after which a job has waited long enough to run remotely.
    pub skips: u32,
    /// W: waiting time after which a job has waited long enough to run remotely.
    pub patience: Patience,
    /// Whether a remote job may start before a local one.
    pub preference: Preference,
    /// What becomes of a slot that no job fits.
    pub nothing_fits: NothingFits,
}

/// C: maximum number of remote jobs on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contention {
    /// This number on every node.
    Jobs(NonZeroU32),
    /// Half of the node's lent slots, rounded up.
    HalfOfSlots,
}

/// Time per megabyte (10⁶ bytes) of a job's size, in nanoseconds.
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

/// The rule against starvation: an old job moves to queue 1, the queue of the smallest jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aging {
    /// Never: P-4 as the paper prints it. Large jobs starve while enough small ones arrive.
    Never,
    /// When the job is older than `base` and the time for its size.
    After {
        /// Age that every job reaches first.
        base: Duration,
        /// Further age by the job's size.
        by_size: Patience,
    },
}

impl Aging {
    /// 30 s and ten times the default W.
    pub const DEFAULT: Self =
        Self::After { base: Duration::from_secs(30), by_size: Patience(10 * Patience::DEFAULT.0) };
}

/// The rank of a job in the policy's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rank {
    pub(super) key: u64,
    pub(super) arrival: Arrival,
    pub(super) job: JobId,
}

/// The first jobs of the order that could get a slot, by what speaks for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    /// The first job whose home is the slot's node.
    pub(super) local: Option<Rank>,
    /// The first job that may run anywhere, if the node takes a remote job.
    pub(super) remote: Option<Rank>,
    /// The first job of all.
    pub(super) first: Option<Rank>,
}

impl PoolPolicy {
    /// First in, first out.
    #[must_use]
    pub fn fifo() -> Self {
        Self { order: Order::Arrival, fit: Fit::Anyone(IdleChoice::LongestIdle), aging: Aging::Never }
    }

    /// Shortest job first.
    #[must_use]
    pub fn shortest_first() -> Self {
        Self { order: Order::Size, ..Self::fifo() }
    }

    /// Resource-aware (RA).
    #[must_use]
    pub fn resource_aware(rules: ResourceAwareRules) -> Self {
        let rules = ResourceAwareRules { nothing_fits: NothingFits::KeepIdle, ..rules };
        Self { fit: Fit::ResourceAware(rules), ..Self::fifo() }
    }

    /// Workload-aware (WA).
    #[must_use]
    pub fn workload_aware(thresholds: Thresholds) -> Self {
        Self { order: Order::Queues(thresholds), ..Self::fifo() }
    }

    /// Workload-and-resource-aware (WRA), as the paper prints it.
    #[must_use]
    pub fn workload_and_resource_aware(thresholds: Thresholds, rules: ResourceAwareRules) -> Self {
        let rules = ResourceAwareRules { nothing_fits: NothingFits::TakeFirst, ..rules };
        Self { order: Order::Queues(thresholds), fit: Fit::ResourceAware(rules), aging: Aging::Never }
    }

    /// WRA with the default rules and the default rule against starvation: what a shared pool uses.
    #[must_use]
    pub fn shared(thresholds: Thresholds) -> Self {
        let wra = Self::workload_and_resource_aware(thresholds, ResourceAwareRules::default());
        Self { aging: Aging::DEFAULT, ..wra }
    }

    /// Shortest job first on each node without pooling: the paper's baseline.
    #[must_use]
    pub fn local_shortest_first() -> Self {
        Self { order: Order::Size, fit: Fit::LocalOnly, aging: Aging::Never }
    }

    /// The rank of a job by its size.
    pub(super) fn rank(&self, job: &Job, arrival: Arrival) -> Rank {
        let key = match &self.order {
            Order::Arrival => 0,
            Order::Size => job.size.0,
            Order::Queues(thresholds) => thresholds.queue_of(job.size),
        };
        Rank { key, arrival, job: job.id }
    }

    /// The age at which a job of this size moves to queue 1.
    pub(super) fn old_age(&self, size: Bytes) -> Option<Duration> {
        match self.aging {
            Aging::Never => None,
            Aging::After { base, by_size } => Some(base.saturating_add(by_size.limit(size))),
        }
    }
}

impl Rank {
    /// The rank of the same job in queue 1.
    pub(super) fn in_first_queue(self) -> Self {
        Self { key: 0, ..self }
    }
}

impl Fit {
    /// The job that the rule gives the slot to.
    pub(super) fn fitting(&self, candidates: &Candidates) -> Option<Rank> {
        match self {
            Self::Anyone(_) => candidates.first,
            Self::LocalOnly => candidates.local,
            Self::ResourceAware(rules) => match rules.preference {
                Preference::Order => candidates.first_that_fits(),
                Preference::LocalFirst => candidates.local.or(candidates.remote),
            },
        }
    }

    /// D: number of skips after which a job may run remotely.
    pub(super) fn skips(&self) -> u32 {
        match self {
            Self::ResourceAware(rules) => rules.skips,
            Self::Anyone(_) | Self::LocalOnly => u32::MAX,
        }
    }

    /// Whether a slot that no job fits stays idle.
    pub(super) fn keeps_idle(&self) -> bool {
        match self {
            Self::ResourceAware(rules) => rules.nothing_fits == NothingFits::KeepIdle,
            Self::Anyone(_) | Self::LocalOnly => true,
        }
    }

    /// The job that gets the slot although it does not fit, if no job fits.
    pub(super) fn otherwise(&self, candidates: &Candidates) -> Option<Rank> {
        candidates.first.filter(|_| !self.keeps_idle())
    }
}

impl Candidates {
    /// The first in the order of the local and the remote candidate.
    pub(super) fn first_that_fits(&self) -> Option<Rank> {
        self.local.into_iter().chain(self.remote).min()
    }

    /// The first candidates of both.
    pub(super) fn or_before(self, other: Self) -> Self {
        let first = |a: Option<Rank>, b: Option<Rank>| a.into_iter().chain(b).min();
        Self {
            local: first(self.local, other.local),
            remote: first(self.remote, other.remote),
            first: first(self.first, other.first),
        }
    }
}

impl Default for ResourceAwareRules {
    /// C = half of a node's slots, D = 5, W = 10 ms/MB, and no slot stays idle.
    fn default() -> Self {
        Self {
            contention: Contention::HalfOfSlots,
            skips: 5,
            patience: Patience::DEFAULT,
            preference: Preference::Order,
            nothing_fits: NothingFits::TakeFirst,
        }
    }
}

impl Contention {
    /// The maximum number of remote jobs on a node that lends `slots` slots.
    #[must_use]
    pub fn limit(self, slots: u32) -> u32 {
        match self {
            Self::Jobs(jobs) => jobs.get(),
            Self::HalfOfSlots => slots.div_ceil(2),
        }
    }
}

impl Patience {
    /// W = 10 ms/MB.
    pub const DEFAULT: Self = Self(10_000_000);

    /// The time for a job of this size.
    #[must_use]
    pub fn limit(self, size: Bytes) -> Duration {
        let nanos = u128::from(self.0) * u128::from(size.0) / 1_000_000;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;

//! Divides the slots of one class between the groups and the jobs of the pool.
//!
//! Groups first get what they are entitled to: their requests, within the guarantees of their tenants and without the
//! floor of the jobs. The rest is slack: idle slots beyond that, which groups get only while no job waits. While one
//! waits, a group whose queue ran empty is entitled to no more slots than it had actions for, or to its minimum.

use super::broker::{self, Bid, Surplus};
use super::controller::{Lateness, Request};
use super::edf::{self, Due};
use super::rules::{Floor, Shrinking};
use super::{Goal, Limits};
use crate::pool::TenantId;
use std::collections::BTreeMap;
use std::time::Duration;

/// The slots of a class and what jobs do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassState {
    /// Number of slots.
    pub slots: u32,
    /// Number of slots that jobs hold.
    pub held_by_jobs: u32,
    /// Whether a job waits that could run in the class.
    pub jobs: Jobs,
}

/// Whether jobs wait for slots of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// A job waits.
    Wait,
    /// No job waits.
    HaveSlots,
}

/// A group, as the division sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Claim {
    pub(super) tenant: TenantId,
    pub(super) goal: Goal,
    pub(super) limits: Limits,
    pub(super) request: Request,
    /// Number of slots that the group was entitled to in the period before.
    pub(super) before: Entitlement,
}

/// The number of slots that a group gets even if jobs wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entitlement {
    /// By its request.
    pub(super) requested: u32,
    /// With the slots that it keeps for one more period.
    pub(super) kept: u32,
}

/// The slots of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) entitled: Entitlement,
    /// All slots, with slack.
    pub(super) given: u32,
}

impl ClassState {
    /// Number of slots that groups may be entitled to.
    #[must_use]
    pub fn for_groups(&self, floor: Floor) -> u32 {
        self.slots - floor.slots(self.slots)
    }

    /// Number of slots that groups may have now: with slack, if there is any.
    #[must_use]
    pub fn with_slack(&self, floor: Floor) -> u32 {
        match self.jobs {
            Jobs::Wait => self.for_groups(floor),
            Jobs::HaveSlots => self.for_groups(floor).max(self.slots.saturating_sub(self.held_by_jobs)),
        }
    }

    /// Whether the slots are divided as in another state: while jobs wait, it does not matter how many slots they hold.
    #[must_use]
    pub fn divides_as(&self, other: &Self) -> bool {
        let (slots, jobs) = (self.slots == other.slots, self.jobs == other.jobs);
        slots && jobs && (self.jobs == Jobs::Wait || self.held_by_jobs == other.held_by_jobs)
    }

    /// Number of slots that groups may have beyond their requests.
    fn slack(&self, entitled: u32) -> Option<u32> {
        let idle = self.slots.saturating_sub(self.held_by_jobs);
        (self.jobs == Jobs::HaveSlots && idle >= entitled).then_some(idle)
    }
}

impl Claim {
    /// Number of slots that the group can use, as far as that matters to others.
    fn usable(&self, jobs: Jobs) -> u32 {
        self.request.usable.filter(|_| jobs == Jobs::Wait).unwrap_or(u32::MAX)
    }

    fn bid(&self, jobs: Jobs) -> Bid {
        let surplus = match (self.goal, self.request.lateness) {
            (Goal::Deadline { .. }, Lateness::OnTime) => Surplus::Welcome,
            (Goal::Throughput(_), _) | (_, Lateness::Late) => Surplus::Useless,
        };
        let request = Request { devices: self.request.devices.min(self.usable(jobs)), ..self.request };
        Bid { request, limits: self.limits, surplus }
    }

    fn due(&self, jobs: Jobs) -> Due {
        // A throughput goal is never due.
        let deadline = match self.goal {
            Goal::Deadline { at, .. } => at,
            Goal::Throughput(_) => Duration::MAX,
        };
        let most = match self.request.lateness {
            Lateness::OnTime => self.limits.clamp(self.usable(jobs)),
            Lateness::Late => self.limits.clamp(1),
        };
        Due { deadline, limits: Limits { least: self.limits.least.min(most), most } }
    }
}

/// The throughput policy: by requests.
pub(super) fn by_request(
    claims: &[Claim],
    class: ClassState,
    floor: Floor,
    shrinking: Shrinking,
    guaranteed: impl Fn(TenantId) -> u32,
) -> Vec<Share> {
    let bids: Vec<Bid> = claims.iter().map(|claim| claim.bid(class.jobs)).collect();
    let caps = by_tenant(claims, class.slots, &guaranteed, |indexes, cap| {
        let bids: Vec<Bid> = indexes.iter().filter_map(|index| bids.get(*index).copied()).collect();
        broker::requested(&bids, cap)
    });
    let capped: Vec<Bid> = bids.iter().zip(&caps).map(|(bid, cap)| bid.capped(*cap)).collect();
    let budget = class.for_groups(floor);
    let requested = broker::requested(&capped, budget);
    let kept = match shrinking {
        Shrinking::AtOnce => requested.clone(),
        Shrinking::AfterTwoPeriods => keep(claims, &bids, &requested, budget, &guaranteed),
    };
    let entitled: u32 = kept.iter().sum();
    let given = class.slack(entitled).map_or_else(
        || kept.clone(),
        |idle| {
            let from = |(bid, kept): (&Bid, &u32)| bid.at_least(*kept);
            broker::allocate(&bids.iter().zip(&kept).map(from).collect::<Vec<_>>(), idle)
        },
    );
    shares(&requested, &kept, &given)
}

/// EDF: by deadlines.
pub(super) fn by_deadline(
    claims: &[Claim],
    class: ClassState,
    floor: Floor,
    guaranteed: impl Fn(TenantId) -> u32,
) -> Vec<Share> {
    let dues: Vec<Due> = claims.iter().map(|claim| claim.due(class.jobs)).collect();
    let caps = by_tenant(claims, class.slots, &guaranteed, |indexes, cap| {
        let dues: Vec<Due> = indexes.iter().filter_map(|index| dues.get(*index).copied()).collect();
        edf::allocate(&dues, cap)
    });
    let capped: Vec<Due> =
        dues.iter().zip(&caps).map(|(due, cap)| Due { limits: due.limits.capped(*cap), ..*due }).collect();
    let kept = edf::allocate(&capped, class.for_groups(floor));
    let given = class.slack(kept.iter().sum()).map_or_else(
        || kept.clone(),
        |idle| {
            let from =
                |(due, kept): (&Due, &u32)| Due { limits: Limits { least: *kept, ..due.limits }, ..*due };
            edf::allocate(&dues.iter().zip(&kept).map(from).collect::<Vec<_>>(), idle)
        },
    );
    shares(&kept, &kept, &given)
}

/// The most that each group is entitled to by its tenant's guarantee, which `divide` divides among the tenant's groups. A
/// guarantee of all slots of the class is no bound.
fn by_tenant(
    claims: &[Claim],
    slots: u32,
    guaranteed: impl Fn(TenantId) -> u32,
    divide: impl Fn(&[usize], u32) -> Vec<u32>,
) -> Vec<u32> {
    let mut of_tenant: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        of_tenant.entry(claim.tenant).or_default().push(index);
    }
    let mut caps = vec![u32::MAX; claims.len()];
    for (tenant, indexes) in of_tenant {
        if guaranteed(tenant) >= slots {
            continue;
        }
        for (index, cap) in indexes.iter().zip(divide(&indexes, guaranteed(tenant))) {
            if let Some(of) = caps.get_mut(*index) {
                *of = cap;
            }
        }
    }
    caps
}

/// Lets a group that needs fewer slots than before keep them for one period more. Others grow from what is left.
fn keep(
    claims: &[Claim],
    bids: &[Bid],
    requested: &[u32],
    budget: u32,
    guaranteed: impl Fn(TenantId) -> u32,
) -> Vec<u32> {
    let wanted = |claim: &Claim, requested: u32| match claim.request.lateness {
        Lateness::OnTime => requested.max(claim.before.kept.min(claim.before.requested)),
        Lateness::Late => requested,
    };
    let wanted: Vec<u32> = claims.iter().zip(requested).map(|(claim, of)| wanted(claim, *of)).collect();
    let mut kept: Vec<u32> =
        claims.iter().zip(&wanted).map(|(claim, wanted)| claim.before.kept.min(*wanted)).collect();
    let mut of_tenant: BTreeMap<TenantId, u32> = BTreeMap::new();
    for (claim, kept) in claims.iter().zip(&kept) {
        *of_tenant.entry(claim.tenant).or_default() += kept;
    }
    // There are fewer slots than before, or smaller guarantees: nothing is kept.
    let too_many = |(tenant, kept): (&TenantId, &u32)| *kept > guaranteed(*tenant);
    if kept.iter().sum::<u32>() > budget || of_tenant.iter().any(too_many) {
        return requested.to_vec();
    }
    let mut left = budget - kept.iter().sum::<u32>();
    for index in broker::worst_first(bids) {
        let (Some(claim), Some(wanted), Some(kept)) =
            (claims.get(index), wanted.get(index), kept.get_mut(index))
        else {
            continue;
        };
        let of_tenant = of_tenant.entry(claim.tenant).or_default();
        let more = (*wanted - *kept).min(left).min(guaranteed(claim.tenant) - *of_tenant);
        *kept += more;
        *of_tenant += more;
        left -= more;
    }
    kept
}

fn shares(requested: &[u32], kept: &[u32], given: &[u32]) -> Vec<Share> {
    let entitled = requested.iter().zip(kept).map(|(requested, kept)| (*requested, *kept));
    entitled
        .zip(given)
        .map(|((requested, kept), given)| Share { entitled: Entitlement { requested, kept }, given: *given })
        .collect()
}

impl Limits {
    /// The same limits for at most `cap` devices.
    fn capped(self, cap: u32) -> Self {
        Self { least: self.least.min(cap), most: self.most.min(cap) }
    }
}

impl Bid {
    /// The same bid for at most `cap` devices.
    fn capped(&self, cap: u32) -> Self {
        Self { limits: self.limits.capped(cap), ..*self }
    }

    /// The same bid of a job that has `kept` devices already.
    fn at_least(&self, kept: u32) -> Self {
        Self { limits: Limits { least: kept, ..self.limits }, ..*self }
    }
}

#[cfg(test)]
mod tests;

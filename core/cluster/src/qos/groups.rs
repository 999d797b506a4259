//! The groups of one slot class and the slots that each may hold (Q).
//!
//! Groups say how many slots each of them may hold; who holds which slot is the caller's. Decisions are made when a
//! group opens or closes, at the end of each period, and when the slots that jobs leave change.

use super::admission::{self, Admission};
use super::controller::{Controller, Forecast, JobProgress, Request};
use super::division::{self, Claim, Share};
use super::rules::GoalRules;
use super::{Goal, JobId, Limits};
use crate::pool::TenantId;
use std::collections::BTreeMap;
use std::time::Duration;

pub use super::division::{ClassState, Jobs};

/// The policy for the sizes of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GoalPolicy {
    /// Controllers and a broker, once per period.
    #[default]
    Throughput,
    /// Earliest deadline first, when a group opens or closes.
    Edf,
}

/// The groups of a slot class.
#[derive(Debug)]
pub struct Groups {
    policy: GoalPolicy,
    rules: GoalRules,
    groups: BTreeMap<JobId, Group>,
    guarantees: BTreeMap<TenantId, u32>,
    default_guarantee: u32,
}

/// A group that opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewGroup {
    /// Tenant that the group counts for.
    pub tenant: TenantId,
    /// Goal of the group.
    pub goal: Goal,
    /// Minimum and maximum number of slots.
    pub limits: Limits,
}

#[derive(Debug)]
struct Group {
    new: NewGroup,
    controller: Controller,
    request: Request,
    share: Share,
    /// Entitlement at the end of the period before.
    before: division::Entitlement,
}

/// The reason why a group does not open. The message says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The id is known.
    #[error("group {} is open already", .0.0)]
    Known(JobId),
    /// EDF knows deadlines only.
    #[error("the goal policy is edf, which knows no throughput: give a deadline and a number of actions")]
    NoDeadline,
    /// The minima of the tenant's groups exceed its guarantee.
    #[error(
        "a minimum of {least} slots, and {others} of the namespace's other groups, exceed its {guaranteed} guaranteed \
         slots: open the group with a smaller minimum, close another one, or have guaranteed-slots raised"
    )]
    Guarantee {
        /// Minimum of the group.
        least: u32,
        /// Minima of the tenant's other groups.
        others: u32,
        /// The guarantee.
        guaranteed: u32,
    },
    /// The class has too few slots for the minimum.
    #[error(
        "{missing} slots are missing for the group's minimum: try again when other groups have closed, or open the \
         group with a smaller minimum"
    )]
    TooFew {
        /// Number of missing slots.
        missing: u32,
    },
}

impl Groups {
    /// No groups as yet. A tenant is guaranteed `default_guarantee` slots unless [`Self::set_guarantee`] says otherwise.
    #[must_use]
    pub fn new(policy: GoalPolicy, rules: GoalRules, default_guarantee: u32) -> Self {
        Self { policy, rules, groups: BTreeMap::new(), guarantees: BTreeMap::new(), default_guarantee }
    }

    /// Sets the number of slots of the class that a tenant's groups together get even if jobs wait.
    pub fn set_guarantee(&mut self, tenant: TenantId, slots: u32) {
        self.guarantees.insert(tenant, slots);
    }

    /// Opens a group. Ids ascend in the order in which groups open.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn open(
        &mut self,
        id: JobId,
        new: NewGroup,
        class: ClassState,
        now: Duration,
    ) -> Result<(), OpenError> {
        self.check_new(id, &new)?;
        let least = new.limits.least();
        let all = minima(self.groups.values()).saturating_add(least);
        let for_groups = class.for_groups(self.rules.floor);
        if all > for_groups {
            return Err(OpenError::TooFew { missing: all - for_groups });
        }
        // While jobs wait there is no slack to begin with, and the division says who is entitled to what.
        let is_admitted = self.policy == GoalPolicy::Throughput && class.jobs == Jobs::HaveSlots;
        let given = if is_admitted { self.admit(new.limits, class)? } else { 0 };
        self.add(id, new, given, now);
        if !is_admitted {
            self.divide(class);
        }
        Ok(())
    }

    /// Opens a group that was open before, with another broker. The slots are not all known yet: how many there are
    /// refuses nothing.
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn reopen(
        &mut self,
        id: JobId,
        new: NewGroup,
        class: ClassState,
        now: Duration,
    ) -> Result<(), OpenError> {
        self.check_new(id, &new)?;
        self.add(id, new, 0, now);
        self.divide(class);
        Ok(())
    }

    /// A group of which no action has finished yet holds so many slots: it asks for no fewer.
    pub fn holds(&mut self, id: JobId, slots: u32) {
        if let Some(group) = self.groups.get_mut(&id)
            && !group.controller.has_measured()
        {
            group.request.devices = group.request.devices.max(slots);
        }
    }

    /// Changes the goal of a group, of which more is known now.
    pub fn set_goal(&mut self, id: JobId, goal: Goal) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.new.goal = goal;
            group.controller.set_goal(goal);
        }
    }

    fn check_new(&self, id: JobId, new: &NewGroup) -> Result<(), OpenError> {
        if self.groups.contains_key(&id) {
            return Err(OpenError::Known(id));
        }
        if self.policy == GoalPolicy::Edf && matches!(new.goal, Goal::Throughput(_)) {
            return Err(OpenError::NoDeadline);
        }
        let least = new.limits.least();
        let guaranteed = self.guaranteed(new.tenant);
        let others = minima(self.groups.values().filter(|group| group.new.tenant == new.tenant));
        if others.saturating_add(least) > guaranteed {
            return Err(OpenError::Guarantee { least, others, guaranteed });
        }
        Ok(())
    }

    fn add(&mut self, id: JobId, new: NewGroup, given: u32, now: Duration) {
        let least = new.limits.least();
        let entitled = division::Entitlement { requested: least, kept: least };
        let share = Share { entitled, given };
        let controller = Controller::new(new.goal, self.rules, now);
        let request = Request::of_new_job(least);
        self.groups.insert(id, Group { new, controller, request, share, before: entitled });
    }

    /// Closes a group. Its slots are given to others at once under EDF, else at the end of the period.
    pub fn close(&mut self, id: JobId, class: ClassState) {
        if self.groups.remove(&id).is_some() && self.policy == GoalPolicy::Edf {
            self.divide(class);
        }
    }

    /// Ends a period: each group's progress makes its request, and the requests divide the slots.
    pub fn end_period(&mut self, progress: impl Fn(JobId) -> Option<JobProgress>, class: ClassState) {
        for (id, group) in &mut self.groups {
            group.before = group.share.entitled;
            if let Some(progress) = progress(*id) {
                group.request = group.controller.observe(progress);
            }
        }
        self.divide(class);
    }

    /// Divides the slots anew, after slots came or went, or jobs began or ceased to wait.
    pub fn divide(&mut self, class: ClassState) {
        let shares = self.shares(class);
        for (group, share) in self.groups.values_mut().zip(shares) {
            group.share = share;
        }
    }

    fn shares(&self, class: ClassState) -> Vec<Share> {
        let claims: Vec<Claim> = self.groups.values().map(Group::claim).collect();
        let guaranteed = |tenant| self.guaranteed(tenant);
        let GoalRules { floor, shrinking, .. } = self.rules;
        match self.policy {
            GoalPolicy::Throughput => division::by_request(&claims, class, floor, shrinking, guaranteed),
            GoalPolicy::Edf => division::by_deadline(&claims, class, floor, guaranteed),
        }
    }

    /// Number of slots that a group may hold now.
    #[must_use]
    pub fn given(&self, id: JobId) -> u32 {
        self.groups.get(&id).map_or(0, |group| group.share.given)
    }

    /// All groups with their tenants and the number of slots that each may hold.
    pub fn all(&self) -> impl Iterator<Item = (JobId, TenantId, u32)> {
        self.groups.iter().map(|(id, group)| (*id, group.new.tenant, group.share.given))
    }

    /// Maximum number of slots that jobs may hold: those that no group was given.
    #[must_use]
    pub fn most_jobs(&self, class: ClassState) -> u32 {
        class.slots.saturating_sub(self.all().map(|(_, _, given)| given).sum())
    }

    /// Maximum number of slots that jobs could hold if jobs waited: groups would keep what they have a right to.
    #[must_use]
    pub fn most_jobs_that_wait(&self, class: ClassState) -> u32 {
        let shares = self.shares(ClassState { jobs: Jobs::Wait, ..class });
        class.slots.saturating_sub(shares.iter().map(|share| share.given).sum())
    }

    /// What a group will do with the slots that it may hold; `None` until an action has finished, or without slots.
    #[must_use]
    pub fn forecast(&self, id: JobId, now: Duration, done: u64) -> Option<Forecast> {
        let group = self.groups.get(&id)?;
        group.controller.forecast(now, done, group.share.given)
    }

    fn guaranteed(&self, tenant: TenantId) -> u32 {
        self.guarantees.get(&tenant).copied().unwrap_or(self.default_guarantee)
    }

    /// Number of slots that a new group has until the end of the period.
    fn admit(&mut self, limits: Limits, class: ClassState) -> Result<u32, OpenError> {
        let running = |(id, group): (&JobId, &Group)| admission::Running {
            id: *id,
            devices: group.share.given,
            request: group.request.devices,
            limits: group.new.limits,
        };
        let running: Vec<admission::Running> = self.groups.iter().map(running).collect();
        let given: u32 = running.iter().map(|group| group.devices).sum();
        let free = class.with_slack(self.rules.floor).saturating_sub(given);
        match admission::admit(&running, free, limits) {
            Admission::Admitted { devices, taken } => {
                for (from, count) in taken {
                    if let Some(group) = self.groups.get_mut(&from) {
                        group.share.given -= count;
                    }
                }
                Ok(devices)
            }
            Admission::Rejected { missing } => Err(OpenError::TooFew { missing }),
        }
    }
}

impl Group {
    fn claim(&self) -> Claim {
        let NewGroup { tenant, goal, limits } = self.new;
        Claim { tenant, goal, limits, request: self.request, before: self.before }
    }
}

/// The minima of groups together.
fn minima<'a>(groups: impl Iterator<Item = &'a Group>) -> u32 {
    groups.map(|group| group.new.limits.least()).sum()
}

#[cfg(test)]
mod tests;

//! Jobs (P) and groups (Q) on the same slots.
//!
//! [`Pool`] decides which job gets a slot, [`Groups`] how many slots of a class each group may hold. This module joins
//! both: what groups may hold jobs may not, slack goes to groups while no job waits for the class, and comes back when
//! one does. Every call returns what the caller must do now.
//!
//! A group has one slot class, and the groups of each class are divided for themselves.

mod rejoining;

use crate::pool::policy::PoolPolicy;
use crate::pool::state::{Pool, PoolError, Use};
use crate::pool::tenants::{QuotaError, TenantRules};
use crate::pool::{AcceleratorId, Bytes, Grant, Job, JobId, NodeIndex, SlotClass, SlotNumber, TenantId};
use crate::qos::JobId as GroupId;
use crate::qos::controller::{Forecast, JobProgress};
use crate::qos::groups::{ClassState, GoalPolicy, Groups, Jobs, NewGroup, OpenError};
use crate::qos::rules::GoalRules;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A slot of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Node of the slot.
    pub node: NodeIndex,
    /// Number of the slot.
    pub number: SlotNumber,
}

/// What the caller must do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// Jobs that start.
    pub jobs: Vec<Grant>,
    /// Slots that groups get.
    pub grown: Vec<(GroupId, Slot)>,
    /// Slots that groups give back after their current action: see [`SharedPool::released`].
    pub recalled: Vec<(GroupId, Slot)>,
}

/// The parameters of a shared pool.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// Policy of the jobs.
    pub jobs: PoolPolicy,
    /// Maximum number of waiting jobs.
    pub most_waiting: usize,
    /// Policy of the groups.
    pub goals: GoalPolicy,
    /// Rules of the groups.
    pub rules: GoalRules,
}

/// Slots with the jobs and groups that use them.
#[derive(Debug)]
pub struct SharedPool {
    pool: Pool,
    goals: GoalPolicy,
    rules: GoalRules,
    classes: BTreeMap<SlotClass, Class>,
    groups: BTreeMap<GroupId, Group>,
    guarantees: BTreeMap<TenantId, u32>,
    knowledge: Knowledge,
}

/// Whether the pool knows all of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    /// They are told one after the other: no group gives any back, for it is not known how many there are.
    Grows,
    Complete,
}

#[derive(Debug)]
struct Class {
    groups: Groups,
    /// State by which the slots were divided last.
    divided: Option<ClassState>,
}

#[derive(Debug)]
struct Group {
    class: SlotClass,
    tenant: TenantId,
    accelerator: AcceleratorId,
    held: BTreeSet<Slot>,
    /// Slots that are recalled and not released as yet.
    recalled: BTreeSet<Slot>,
}

/// The reason why a group does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The policy of the groups.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A quota of the tenant.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

impl SharedPool {
    /// A pool without slots, jobs and groups.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        let Parameters { jobs, most_waiting, goals, rules } = parameters;
        Self {
            pool: Pool::new(jobs, most_waiting),
            goals,
            rules,
            classes: BTreeMap::new(),
            groups: BTreeMap::new(),
            guarantees: BTreeMap::new(),
            knowledge: Knowledge::Complete,
        }
    }

    /// The jobs and the slots.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sets what a tenant may have, and how many slots of each class its groups get even if jobs wait (0 by default).
    pub fn set_tenant(
        &mut self,
        tenant: TenantId,
        rules: TenantRules,
        guaranteed_slots: u32,
        now: Duration,
    ) -> Actions {
        let guaranteed_slots = guaranteed_slots.min(rules.held_slots);
        self.guarantees.insert(tenant, guaranteed_slots);
        for class in self.classes.values_mut() {
            class.groups.set_guarantee(tenant, guaranteed_slots);
            class.divided = None;
        }
        let jobs = self.pool.set_tenant_rules(tenant, rules, now);
        self.act(jobs, now)
    }

    /// Adds an idle slot.
    pub fn add_slot(&mut self, slot: Slot, class: SlotClass, now: Duration) -> Actions {
        let jobs = self.pool.add_slot(slot.node, slot.number, class, now);
        self.act(jobs, now)
    }

    /// Takes a slot out of the pool: at once if it is idle, else when its job or group releases it.
    pub fn remove_slot(&mut self, slot: Slot, now: Duration) -> Actions {
        self.pool.remove_slot(slot.node, slot.number, now);
        self.act(Vec::new(), now)
    }

    /// Sets the accelerator whose bitstream a slot has.
    pub fn set_resident(&mut self, slot: Slot, resident: Option<AcceleratorId>) {
        self.pool.set_resident(slot.node, slot.number, resident);
    }

    /// Adds a job, as [`Pool::submit`] does.
    ///
    /// # Errors
    /// [`PoolError`]; nothing has changed then.
    pub fn submit(&mut self, job: Job, now: Duration) -> Result<Actions, PoolError> {
        let grant = self.pool.submit(job, now)?;
        Ok(self.act(grant.into_iter().collect(), now))
    }

    /// Ends a running job, as [`Pool::finish`] does.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn finish(&mut self, job: JobId, now: Duration) -> Result<Actions, PoolError> {
        let jobs = self.pool.finish(job, now)?;
        Ok(self.act(jobs, now))
    }

    /// Ends a recalled job, which waits again, as [`Pool::recalled`] does.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn recalled(&mut self, job: JobId, rest: Bytes, now: Duration) -> Result<Actions, PoolError> {
        let jobs = self.pool.recalled(job, rest, now)?;
        Ok(self.act(jobs, now))
    }

    /// Removes a waiting job, as [`Pool::cancel`] does.
    pub fn cancel(&mut self, job: JobId, now: Duration) -> Actions {
        self.pool.cancel(job);
        // Slots may have been kept for its bundle.
        let jobs = self.pool.wake(now);
        self.act(jobs, now)
    }

    /// Starts the jobs that have waited long enough. Call it at [`Pool::next_wake`].
    pub fn wake(&mut self, now: Duration) -> Actions {
        let jobs = self.pool.wake(now);
        self.act(jobs, now)
    }

    /// Says whether a running job uses its slot.
    pub fn set_use(&mut self, job: JobId, slot: Use) {
        self.pool.set_use(job, slot);
    }

    /// The running jobs that have no right to their slots while jobs or groups wait for such slots. The caller recalls
    /// them.
    #[must_use]
    pub fn recallable_while_wanted(&self) -> Vec<JobId> {
        let lacks = |(id, group): (&GroupId, &Group)| (self.given(*id) as usize) > group.held.len();
        let lacking = |class| self.groups.iter().any(|of| of.1.class == class && lacks(of));
        self.pool.recallable_in(|class| self.pool.is_wanted(class) || lacking(class))
    }

    /// Opens a group in a slot class. Ids ascend in the order in which groups open.
    ///
    /// # Errors
    /// [`GroupError`]; nothing has changed then.
    pub fn open_group(
        &mut self,
        id: GroupId,
        new: NewGroup,
        class: SlotClass,
        accelerator: AcceleratorId,
        now: Duration,
    ) -> Result<Actions, GroupError> {
        let (wanted, quota) = (new.limits.least().max(1), self.pool.tenant_rules(new.tenant).held_slots);
        if wanted > quota {
            return Err(QuotaError::HeldSlots { wanted, quota }.into());
        }
        if self.groups.contains_key(&id) {
            return Err(OpenError::Known(id).into());
        }
        let state = self.state(class);
        self.groups_of(class, state).open(id, new, state, now)?;
        self.groups.insert(id, Group::without_slots(class, new.tenant, accelerator));
        Ok(self.act(Vec::new(), now))
    }

    /// The groups of a class, whose state this is.
    fn groups_of(&mut self, class: SlotClass, state: ClassState) -> &mut Groups {
        let (goals, rules, guarantees) = (self.goals, self.rules, &self.guarantees);
        let of_class = self.classes.entry(class).or_insert_with(|| {
            let mut groups = Groups::new(goals, rules, 0);
            for (tenant, guaranteed) in guarantees {
                groups.set_guarantee(*tenant, *guaranteed);
            }
            Class { groups, divided: Some(state) }
        });
        &mut of_class.groups
    }

    /// Closes a group and recalls its slots.
    pub fn close_group(&mut self, id: GroupId, now: Duration) -> Actions {
        if let Some(group) = self.groups.get(&id) {
            let state = self.state(group.class);
            if let Some(class) = self.classes.get_mut(&group.class) {
                class.groups.close(id, state);
            }
        }
        self.act(Vec::new(), now)
    }

    /// Makes a slot idle that a group has given back, whether it was recalled or not.
    pub fn released(&mut self, id: GroupId, slot: Slot, now: Duration) -> Actions {
        let Some(group) = self.groups.get_mut(&id) else { return Actions::default() };
        if !group.held.remove(&slot) && !group.recalled.remove(&slot) {
            return Actions::default();
        }
        let jobs = self.pool.release_from_group(group.tenant, slot.node, slot.number, now);
        self.act(jobs, now)
    }

    /// Ends a period of all groups: each group's progress makes its request, and the requests divide the slots.
    pub fn end_period(
        &mut self,
        progress: impl Fn(GroupId) -> Option<JobProgress>,
        now: Duration,
    ) -> Actions {
        let states: Vec<(SlotClass, ClassState)> =
            self.classes.keys().map(|class| (*class, self.state(*class))).collect();
        for (class, state) in states {
            if let Some(class) = self.classes.get_mut(&class) {
                class.groups.end_period(&progress, state);
                class.divided = Some(state);
            }
        }
        self.act(Vec::new(), now)
    }

    /// Number of slots that a group may hold now.
    #[must_use]
    pub fn given(&self, id: GroupId) -> u32 {
        self.class_of(id).map_or(0, |class| class.groups.given(id))
    }

    /// What a group will do with the slots that it may hold.
    #[must_use]
    pub fn forecast(&self, id: GroupId, now: Duration, done: u64) -> Option<Forecast> {
        self.class_of(id)?.groups.forecast(id, now, done)
    }

    fn class_of(&self, id: GroupId) -> Option<&Class> {
        self.classes.get(&self.groups.get(&id)?.class)
    }

    fn state(&self, class: SlotClass) -> ClassState {
        let count = self.pool.class(class);
        let jobs = if self.pool.is_wanted(class) { Jobs::Wait } else { Jobs::HaveSlots };
        ClassState { slots: count.slots, held_by_jobs: count.jobs, jobs }
    }

    /// Carries out what follows from a change: divides the slots of each class anew if its state has changed, starts jobs
    /// in slots that groups do not have any longer, and lets groups grow and shrink.
    fn act(&mut self, jobs: Vec<Grant>, now: Duration) -> Actions {
        let mut actions = Actions { jobs, ..Actions::default() };
        let classes: Vec<SlotClass> = self.classes.keys().copied().collect();
        for class in classes {
            // Jobs that start leave slack to groups, which changes the division once more, and starts no job.
            for _ in 0..3 {
                if !self.divide(class, &mut actions.jobs, now) {
                    break;
                }
            }
        }
        self.size_groups(&mut actions);
        actions
    }

    /// Returns whether the state of the class has changed.
    fn divide(&mut self, class: SlotClass, jobs: &mut Vec<Grant>, now: Duration) -> bool {
        if self.pool.has_bundles()
            && let Some(of_class) = self.classes.get(&class)
        {
            let most = of_class.groups.most_jobs_that_wait(self.state(class));
            self.pool.set_most_jobs_that_wait(class, most);
        }
        let state = self.state(class);
        let Some(of_class) = self.classes.get_mut(&class) else { return false };
        let is_changed = of_class.divided.is_none_or(|before| !before.divides_as(&state));
        if is_changed {
            of_class.groups.divide(state);
            of_class.divided = Some(state);
        }
        let most_jobs = of_class.groups.most_jobs(state);
        let started = self.pool.set_most_jobs(class, most_jobs, now);
        let is_changed = is_changed || !started.is_empty();
        jobs.extend(started);
        is_changed
    }

    /// Recalls slots of groups that have too many, the last ones first, and gives idle slots to groups that have too few.
    fn size_groups(&mut self, actions: &mut Actions) {
        let ids: Vec<GroupId> = self.groups.keys().copied().collect();
        let may_recall = self.knowledge == Knowledge::Complete;
        for id in ids.iter().filter(|_| may_recall) {
            let given = self.given(*id);
            let Some(group) = self.groups.get_mut(id) else { continue };
            while group.held.len() > given as usize
                && let Some(slot) = group.held.pop_last()
            {
                group.recalled.insert(slot);
                actions.recalled.push((*id, slot));
            }
        }
        for id in ids {
            let given = self.given(id);
            let is_open = self.is_open(id);
            let Some(group) = self.groups.get_mut(&id) else { continue };
            while group.held.len() < given as usize
                && let Some((node, number)) =
                    self.pool.take_for_group(group.class, group.tenant, group.accelerator)
            {
                group.held.insert(Slot { node, number });
                actions.grown.push((id, Slot { node, number }));
            }
            if !is_open && group.held.is_empty() && group.recalled.is_empty() {
                self.groups.remove(&id);
            }
        }
    }

    fn is_open(&self, id: GroupId) -> bool {
        self.class_of(id).is_some_and(|class| class.groups.all().any(|(open, ..)| open == id))
    }
}

impl Group {
    fn without_slots(class: SlotClass, tenant: TenantId, accelerator: AcceleratorId) -> Self {
        Self { class, tenant, accelerator, held: BTreeSet::new(), recalled: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests;

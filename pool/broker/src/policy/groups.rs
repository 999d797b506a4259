//! Groups with goals: which are open, and which of their jobs wait.
//!
//! The pool gives slots to groups, and a group's slots go to its waiting jobs. A slot for which no job waits stays the
//! group's until the pool wants it back or another job of the group comes.

mod adopted;

use super::{Holder, Policy, Stage, pool_time};
use crate::catalog::Variant;
use fpga_cluster::pool::state::{Quotas, Use};
use fpga_cluster::pool::{AcceleratorId, ClassSet, SlotClass, TenantId};
use fpga_cluster::qos::controller::{ActionQueue, JobProgress};
use fpga_cluster::qos::groups::{NewGroup, OpenError};
use fpga_cluster::qos::{Goal, GoalError, JobId as GroupId, Limits, Rate};
use fpga_cluster::shared_pool::{Actions, GroupError, Slot};
use fpga_core::units::{Millis, Moment, MonotonicTime};
use fpga_pool_leases::ids::{GroupUuid, JobUuid};
use fpga_pool_leases::lease::{self, Usage};
use fpga_pool_leases::messages::CancelCause;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a group's job is cancelled if no slot of the pool fits, as for other jobs.
const NO_SLOT_TIMEOUT: Millis = Millis::from_secs(30);

/// A group. Ids of groups are their clients'; those of several tenants may be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    tenant: TenantId,
    uuid: GroupUuid,
}

/// The open groups.
#[derive(Debug, Default)]
pub(super) struct OpenGroups {
    pub(super) groups: BTreeMap<GroupKey, OpenGroup>,
    keys: BTreeMap<GroupId, GroupKey>,
    opened: u64,
    period_ends: Option<MonotonicTime>,
    /// Jobs for whose groups there is no class of slots.
    without_class: BTreeSet<(MonotonicTime, JobUuid)>,
}

#[derive(Debug)]
pub(super) struct OpenGroup {
    pub(super) id: GroupId,
    pub(super) class: SlotClass,
    /// The goal on the pool's clock.
    pub(super) goal: Goal,
    /// What was asked for.
    pub(super) asked: lease::Group,
    arrival: Arrival,
    pub(super) waiting: BTreeSet<JobUuid>,
    /// Slots without a job.
    pub(super) spare: BTreeSet<Slot>,
    /// Number of slots with a job.
    pub(super) held: u32,
    /// What ended leases have used.
    used: Usage,
    queue: ActionQueue,
}

/// When a group arrived, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    /// On the pool's clock; the goal's time counts from it.
    since: Duration,
    origin: Origin,
}

/// How the policy came to know a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A job of the group asked for a slot.
    Asked,
    /// A lease of the group was found: another broker has opened it.
    Adopted,
}

impl OpenGroups {
    pub(super) fn id(&self, key: GroupKey) -> Option<GroupId> {
        self.groups.get(&key).map(|group| group.id)
    }

    /// All groups, with their tenants and ids.
    pub(super) fn all(&self) -> impl Iterator<Item = (TenantId, u128, &OpenGroup)> {
        self.groups.iter().map(|(key, group)| (key.tenant, key.uuid.0, group))
    }

    pub(super) fn next_wake(&self) -> Option<MonotonicTime> {
        let without_class = self.without_class.first().map(|(until, _)| *until);
        self.period_ends.into_iter().chain(without_class).min()
    }

    /// Whether jobs may wait for a class of slots for their groups.
    pub(super) fn lack_class(&self) -> bool {
        !self.without_class.is_empty()
    }

    /// Whether a group has its slots in a class.
    pub(super) fn use_class(&self, class: SlotClass) -> bool {
        self.groups.values().any(|group| group.class == class)
    }

    /// A job of the group does not wait any more.
    pub(super) fn leave(&mut self, key: GroupKey, job: JobUuid) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.waiting.remove(&job);
        }
    }

    /// A slot without a job is not the group's any more.
    pub(super) fn lose_spare(&mut self, key: GroupKey, place: Slot) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.spare.remove(&place);
        }
    }

    /// A lease of the group is used, or not.
    pub(super) fn ran(&mut self, key: GroupKey, slot: Use) {
        if let Some(group) = self.groups.get_mut(&key)
            && slot == Use::Unused
        {
            group.queue = ActionQueue::RanEmpty;
        }
    }

    /// A lease of the group has ended.
    pub(super) fn count(&mut self, key: GroupKey, usage: Usage) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.used.add(usage);
            group.held = group.held.saturating_sub(1);
        }
    }
}

impl Policy {
    /// A job of a group waits.
    pub(super) fn enter_group(&mut self, uuid: JobUuid, group: &lease::Group, quotas: Quotas, now: Moment) {
        let Some(job) = self.jobs.get(&uuid) else { return };
        let (tenant, accelerator, since, classes) = (job.tenant, job.accelerator, job.since, job.classes);
        let key = GroupKey { tenant, uuid: group.id };
        if !self.groups.groups.contains_key(&key) {
            let Some(class) = self.largest_class(classes) else {
                let until = now.now + NO_SLOT_TIMEOUT;
                self.groups.without_class.insert((until, uuid));
                self.set_stage(uuid, Stage::NoClass { until });
                self.pool.add_group_job(tenant);
                return self.admit_group_job(uuid, quotas, now);
            };
            match self.open(key, group, class, accelerator, Arrival { since, origin: Origin::Asked }, now) {
                Ok(actions) => self.act(actions, now),
                Err((why, message)) => return self.refuse(uuid, why, message),
            }
        }
        self.arrived(key, since);
        let Some(of_key) = self.groups.groups.get_mut(&key) else { return };
        let most = of_key.asked.most;
        if of_key.waiting.len() >= most as usize {
            let message = format!("{most} jobs of the group wait already, as many as it may have slots");
            return self.refuse(uuid, CancelCause::Full, message);
        }
        of_key.waiting.insert(uuid);
        self.set_stage(uuid, Stage::Group(key));
        self.pool.add_group_job(tenant);
        self.give_spare(key);
        self.admit_group_job(uuid, quotas, now);
    }

    /// Refuses a job of a group that waits, if more wait than may.
    fn admit_group_job(&mut self, uuid: JobUuid, quotas: Quotas, now: Moment) {
        let waiting = self.jobs.get(&uuid).filter(|job| job.stage != Stage::Granted);
        let Some(tenant) = waiting.map(|job| job.tenant).filter(|_| quotas == Quotas::Apply) else { return };
        if let Err(error) = self.pool.pool().admit_group_job(tenant) {
            self.leave(uuid, now);
            self.refuse(uuid, super::cause(&error), error.to_string());
        }
    }

    /// The class with the most slots among these; `None` if none has a slot.
    pub(super) fn largest_class(&self, classes: ClassSet) -> Option<SlotClass> {
        let fitting = self.pool.pool().classes().filter(|(class, _)| classes.contains(*class));
        let largest = fitting.filter(|(_, count)| count.slots > 0).max_by_key(|(_, count)| count.slots);
        largest.map(|(class, _)| class)
    }

    /// Looks again in which slots of its group a waiting job can run.
    pub(super) fn update_group_job(&mut self, uuid: JobUuid, key: GroupKey, variants: Arc<[Variant]>) {
        let (classes, accelerator) = (self.classes_of(&variants), self.accelerator_for(&variants));
        if let Some(job) = self.jobs.get_mut(&uuid)
            && job.variants != variants
        {
            (job.variants, job.classes, job.accelerator) = (variants, classes, accelerator);
            self.give_spare(key);
        }
    }

    /// Gives a slot without a job, if the group has one, to a waiting job.
    fn give_spare(&mut self, key: GroupKey) {
        if let Some(place) = self.groups.groups.get_mut(&key).and_then(|group| group.spare.pop_first()) {
            self.give(key, place);
        }
    }

    fn open(
        &mut self,
        key: GroupKey,
        group: &lease::Group,
        class: SlotClass,
        accelerator: AcceleratorId,
        arrival: Arrival,
        now: Moment,
    ) -> Result<Actions, (CancelCause, String)> {
        let invalid = |error: GoalError| (CancelCause::NoFittingSlot, error.to_string());
        let goal = goal(group.goal, arrival.since).map_err(invalid)?;
        let limits = Limits::new(group.least, group.most).map_err(invalid)?;
        let id = GroupId(self.groups.opened);
        self.groups.opened += 1;
        let new = NewGroup { tenant: key.tenant, goal, limits };
        let at = pool_time(now.now);
        let opened = match arrival.origin {
            Origin::Asked => self.pool.open_group(id, new, class, accelerator, at),
            Origin::Adopted => self.pool.reopen_group(id, new, class, accelerator, at).map_err(Into::into),
        };
        let actions = opened.map_err(|error| (cause(&error), error.to_string()))?;
        let new = OpenGroup {
            id,
            class,
            goal,
            asked: *group,
            arrival,
            waiting: BTreeSet::new(),
            spare: BTreeSet::new(),
            held: 0,
            used: Usage::default(),
            queue: ActionQueue::Filled,
        };
        self.groups.groups.insert(key, new);
        self.groups.keys.insert(id, key);
        self.groups.period_ends.get_or_insert(now.now + self.settings.period);
        Ok(actions)
    }

    /// The pool gives a slot to a group.
    pub(super) fn grow(&mut self, id: GroupId, place: Slot) {
        if let Some(key) = self.groups.keys.get(&id).copied() {
            self.give(key, place);
        }
    }

    /// Gives a slot of a group to the first of its waiting jobs that can run there, if any waits.
    fn give(&mut self, key: GroupKey, place: Slot) {
        let mut waiting = self.groups.groups.get(&key).into_iter().flat_map(|group| &group.waiting);
        let fitting = waiting.find(|job| self.bitstream(**job, place).is_some()).copied();
        let granted =
            fitting.filter(|job| self.grant(*job, place, |job| Holder::Group { job, group: key }).is_some());
        let Some(group) = self.groups.groups.get_mut(&key) else { return };
        match granted {
            Some(job) => {
                group.waiting.remove(&job);
                group.held += 1;
            }
            None => {
                group.spare.insert(place);
                if let Some(slot) = self.slots.get_mut(&place) {
                    slot.holder = Holder::GroupWithoutJob(key);
                }
            }
        }
    }

    /// The pool wants a slot of a group back. Returns what follows if the group gives the slot back at once.
    pub(super) fn shrink(&mut self, place: Slot, now: Moment) -> Option<Actions> {
        match self.slots.get(&place)?.holder {
            Holder::GroupWithoutJob(key) => {
                if let Some(slot) = self.slots.get_mut(&place) {
                    slot.holder = Holder::Nobody;
                }
                let group = self.groups.groups.get_mut(&key)?;
                group.spare.remove(&place);
                let id = group.id;
                Some(self.pool.released(id, place, pool_time(now.now)))
            }
            Holder::Group { .. } => {
                self.recall(place);
                None
            }
            Holder::Job { .. } | Holder::Nobody => None,
        }
    }

    /// Jobs whose groups' classes have lost their last slots are to be queued again: other slots may fit, and if none does
    /// they are not to wait for ever.
    pub(super) fn leave_classes_without_slots(&mut self, now: Moment) {
        let is_empty = |group: &OpenGroup| self.pool.pool().class(group.class).slots == 0;
        let groups = self.groups.groups.iter().filter(|(_, group)| is_empty(group));
        let keys: Vec<GroupKey> = groups.map(|(key, _)| *key).collect();
        for key in keys {
            let Some(group) = self.groups.groups.get_mut(&key) else { continue };
            for job in std::mem::take(&mut group.waiting) {
                self.pool.remove_group_job(key.tenant);
                self.set_stage(job, Stage::Anew);
            }
            self.close_if_empty(key, now);
        }
    }

    /// Closes a group of which no job waits or has a lease.
    pub(super) fn close_if_empty(&mut self, key: GroupKey, now: Moment) {
        let is_empty = |group: &OpenGroup| group.waiting.is_empty() && group.held == 0;
        let Some(group) = self.groups.groups.get(&key).filter(|group| is_empty(group)) else { return };
        let id = group.id;
        // The pool recalls the slots without a job.
        let actions = self.pool.close_group(id, pool_time(now.now));
        self.act(actions, now);
        self.groups.groups.remove(&key);
        self.groups.keys.remove(&id);
        if self.groups.groups.is_empty() {
            self.groups.period_ends = None;
        }
    }

    /// Divides the slots between groups anew, if a period has ended, and gives up jobs whose groups have no class.
    pub(super) fn end_period(&mut self, now: Moment) {
        while let Some((until, job)) = self.groups.without_class.first().copied()
            && until <= now.now
        {
            self.groups.without_class.pop_first();
            if self.jobs.get(&job).is_some_and(|job| job.stage == Stage::NoClass { until }) {
                self.give_up(job);
            }
        }
        if self.groups.period_ends.is_none_or(|ends| now.now < ends) {
            return;
        }
        self.groups.period_ends = Some(now.now + self.settings.period);
        let at = pool_time(now.now);
        let mut progress = self.progress(at);
        let actions = self.pool.end_period(|id| progress.get(&id).copied(), at);
        progress.clear();
        for group in self.groups.groups.values_mut() {
            group.queue = ActionQueue::Filled;
        }
        self.act(actions, now);
    }

    pub(super) fn progress(&self, now: Duration) -> BTreeMap<GroupId, JobProgress> {
        let mut used: BTreeMap<GroupKey, Usage> =
            self.groups.groups.iter().map(|(key, group)| (*key, group.used)).collect();
        for slot in self.slots.values() {
            if let Holder::Group { group, .. } = slot.holder
                && let Some(used) = used.get_mut(&group)
            {
                used.add(slot.usage);
            }
        }
        let progress = |(key, group): (&GroupKey, &OpenGroup)| {
            let Usage { actions, busy, .. } = used.get(key).copied().unwrap_or_default();
            // A slot without a job is one for which there is no action.
            let queue = if group.spare.is_empty() { group.queue } else { ActionQueue::RanEmpty };
            let devices = group.held;
            (group.id, JobProgress { now, done: actions, devices, busy: busy.into(), queue })
        };
        self.groups.groups.iter().map(progress).collect()
    }

    /// Slots that a job's group has, and may have.
    pub(super) fn group_slots(&self, key: GroupKey) -> (u32, u32) {
        let group = self.groups.groups.get(&key);
        group.map_or((0, 0), |group| (group.held, self.pool.given(group.id)))
    }

    pub(super) fn set_stage(&mut self, job: JobUuid, stage: Stage) {
        if let Some(job) = self.jobs.get_mut(&job) {
            job.stage = stage;
        }
    }
}

fn goal(goal: lease::Goal, since: Duration) -> Result<Goal, GoalError> {
    match goal {
        lease::Goal::Deadline { actions, within } => {
            Ok(Goal::Deadline { at: since.saturating_add(within.into()), actions })
        }
        lease::Goal::Throughput { actions_per_hour } => {
            Rate::new(actions_per_hour as f64 / 3600.0).map(Goal::Throughput)
        }
    }
}

fn cause(error: &GroupError) -> CancelCause {
    match error {
        GroupError::Quota(_) | GroupError::Open(OpenError::Guarantee { .. }) => CancelCause::Quota,
        GroupError::Open(OpenError::TooFew { .. } | OpenError::Known(_)) => CancelCause::Full,
        GroupError::Open(OpenError::NoDeadline) => CancelCause::NoFittingSlot,
    }
}

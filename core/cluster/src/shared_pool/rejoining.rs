//! Jobs and slots that come back to a shared pool: see [`crate::pool::state::Pool::enter`] and [`crate::pool::state::Pool::adopt`].

use super::{Actions, Group, Knowledge, SharedPool, Slot};
use crate::pool::state::{Entry, PoolError};
use crate::pool::{AcceleratorId, Bytes, Job, JobId, SlotClass, TenantId};
use crate::qos::groups::{NewGroup, OpenError};
use crate::qos::{Goal, JobId as GroupId};
use std::time::Duration;

impl SharedPool {
    /// Slots are told one after the other, until [`Self::knows_all`].
    pub fn learn_slots(&mut self) {
        self.knowledge = Knowledge::Grows;
    }

    /// All slots were told: groups give back what they may not have.
    pub fn knows_all(&mut self, now: Duration) -> Actions {
        self.knowledge = Knowledge::Complete;
        self.act(Vec::new(), now)
    }

    /// A job of a group waits, which counts for the tenant's quota of waiting jobs.
    pub fn add_group_job(&mut self, tenant: TenantId) {
        self.pool.add_group_job(tenant);
    }

    /// A job of a group does not wait any more.
    pub fn remove_group_job(&mut self, tenant: TenantId) {
        self.pool.remove_group_job(tenant);
    }

    /// Opens a group that was open before, with another broker. See [`Groups::reopen`](crate::qos::groups::Groups::reopen).
    ///
    /// # Errors
    /// [`OpenError`]; nothing has changed then.
    pub fn reopen_group(
        &mut self,
        id: GroupId,
        new: NewGroup,
        class: SlotClass,
        accelerator: AcceleratorId,
        now: Duration,
    ) -> Result<Actions, OpenError> {
        let state = self.state(class);
        self.groups_of(class, state).reopen(id, new, state, now)?;
        self.groups.insert(id, Group::without_slots(class, new.tenant, accelerator));
        Ok(self.act(Vec::new(), now))
    }

    /// Changes the goal of a group, of which more is known now.
    pub fn set_goal(&mut self, id: GroupId, goal: Goal) {
        if let Some(class) = self.groups.get(&id).and_then(|group| self.classes.get_mut(&group.class)) {
            class.groups.set_goal(id, goal);
            // Under EDF the deadlines' order divides the slots.
            class.divided = None;
        }
    }

    /// Adds a job that may have arrived before.
    ///
    /// # Errors
    /// [`PoolError`]; nothing has changed then.
    pub fn enter(&mut self, job: Job, entry: Entry, now: Duration) -> Result<Actions, PoolError> {
        let grant = self.pool.enter(job, entry, now)?;
        Ok(self.act(grant.into_iter().collect(), now))
    }

    /// Adds jobs that start at the same time or not at all, as [`crate::pool::state::Pool::enter_bundle`] does.
    ///
    /// # Errors
    /// [`PoolError`]; nothing has changed then.
    pub fn enter_bundle(
        &mut self,
        jobs: Vec<Job>,
        entry: Entry,
        now: Duration,
    ) -> Result<Actions, PoolError> {
        let grants = self.pool.enter_bundle(jobs, entry, now)?;
        Ok(self.act(grants, now))
    }

    /// Ends a job that has processed so many bytes, whatever its size was to be.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn finish_after(
        &mut self,
        job: JobId,
        processed: Bytes,
        now: Duration,
    ) -> Result<Actions, PoolError> {
        let jobs = self.pool.finish_after(job, processed, now)?;
        Ok(self.act(jobs, now))
    }

    /// Adds a slot that a job holds already.
    pub fn adopt_job(&mut self, job: Job, slot: Slot, class: SlotClass, now: Duration) -> Actions {
        self.pool.adopt(job, slot.node, slot.number, class, now);
        self.act(Vec::new(), now)
    }

    /// Adds a slot that an open group holds already. The group gives it back if it may not have so many.
    pub fn adopt_group_slot(&mut self, id: GroupId, slot: Slot, now: Duration) -> Actions {
        if let Some(group) = self.groups.get_mut(&id)
            && self.pool.adopt_for_group(group.tenant, slot.node, slot.number, group.class, now)
        {
            group.held.insert(slot);
            let held = u32::try_from(group.held.len()).unwrap_or(u32::MAX);
            if let Some(class) = self.classes.get_mut(&group.class) {
                class.groups.holds(id, held);
                // The request has changed.
                class.divided = None;
            }
        }
        self.act(Vec::new(), now)
    }
}

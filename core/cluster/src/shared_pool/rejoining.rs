//! Jobs and slots that come back to a shared pool: see [`crate::pool::state::Pool::enter`] and [`crate::pool::state::Pool::adopt`].

use super::{Actions, SharedPool, Slot};
use crate::pool::state::{Entry, PoolError};
use crate::pool::{Bytes, Job, JobId, SlotClass};
use crate::qos::JobId as GroupId;
use std::time::Duration;

impl SharedPool {
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
        }
        self.act(Vec::new(), now)
    }
}

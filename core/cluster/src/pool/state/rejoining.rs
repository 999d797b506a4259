//! Jobs that come back: to the queue with their first arrival, and into a pool that does not know them with the slots
//! that they hold. A broker that takes over from another one needs both.

use super::{Pool, PoolError, Running};
use crate::pool::slots::Holder;
use crate::pool::{Arrival, Bytes, Grant, Job, JobId, NodeIndex, Place, SlotClass, SlotNumber, TenantId};
use std::time::Duration;

/// How a job enters the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// First arrival, on the clock of `now`.
    pub since: Duration,
    /// Whether quotas may refuse the job.
    pub quotas: Quotas,
}

/// Whether quotas may refuse a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotas {
    /// They may: the job is new, or nobody knows that it is not.
    Apply,
    /// They may not: the pool has just taken a slot from the job.
    Waive,
}

impl Entry {
    /// A job that arrives now.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { since: now, quotas: Quotas::Apply }
    }
}

impl Pool {
    /// Adds a job that may have arrived before, as [`Pool::submit`] does.
    ///
    /// # Errors
    /// [`PoolError`]; the pool is unchanged then.
    pub fn enter(&mut self, job: Job, entry: Entry, now: Duration) -> Result<Option<Grant>, PoolError> {
        self.check_new(&job)?;
        let arrival = Arrival { at: entry.since.min(now), number: self.arrivals };
        let waiting = self.waiting_job(job, arrival, now);
        let grant = self.start_in_idle(&waiting, now);
        if grant.is_none() {
            if entry.quotas == Quotas::Apply {
                self.admit_jobs(job.tenant, 1, job.size)?;
            }
            self.queue(waiting, now);
        }
        self.arrivals += 1;
        Ok(grant)
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
    ) -> Result<Vec<Grant>, PoolError> {
        self.end(job, |_| processed, now).map(|(_, grants)| grants)
    }

    /// Adds a slot that a job holds already. The slot counts for the job's tenant from now on. A slot or a job that the
    /// pool has stays as it is.
    pub fn adopt(&mut self, job: Job, node: NodeIndex, slot: SlotNumber, class: SlotClass, now: Duration) {
        let place = if job.home == node { Place::Local } else { Place::Remote };
        if self.check_new(&job).is_err() || !self.slots.add_held(node, slot, class, Holder::Job(place)) {
            return;
        }
        self.slots_changed(node, class, now);
        self.tenants.hold(job.tenant);
        let paid = self.tenants.pay(job.tenant, 0);
        let arrival = Arrival { at: now, number: self.arrivals };
        self.arrivals += 1;
        self.running.insert(job.id, Running { job, arrival, node, slot, class, place, started: now, paid });
    }

    /// Adds a slot that a group of the tenant holds already. `false` if the pool has the slot.
    pub fn adopt_for_group(
        &mut self,
        tenant: TenantId,
        node: NodeIndex,
        slot: SlotNumber,
        class: SlotClass,
        now: Duration,
    ) -> bool {
        let is_new = self.slots.add_held(node, slot, class, Holder::Group);
        if is_new {
            self.slots_changed(node, class, now);
            self.tenants.hold(tenant);
        }
        is_new
    }
}

//! Bundles: jobs that get their slots at the same time or not at all (P-1).
//!
//! A bundle waits in the pool when all of its jobs have come. When a job leaves, the others wait until it is there again,
//! at most for [`COMPLETE_TIMEOUT`].

use super::{Decision, Job, Policy, Stage, cause, pool_time};
use fpga_cluster::pool::state::{Entry as Arrival, Quotas};
use fpga_cluster::pool::{Job as PoolJob, TenantId};
use fpga_core::units::{Millis, Moment, MonotonicTime};
use fpga_pool_leases::ids::{BundleUuid, JobUuid};
use fpga_pool_leases::lease::Bundle;
use fpga_pool_leases::messages::CancelCause;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time in which all jobs of a bundle must have come. A job whose lease was refused may have to wait for others of its
/// bundle until their managers have answered.
const COMPLETE_TIMEOUT: Millis = Millis::from_secs(60);

/// A bundle. Ids of bundles are their clients'; those of several tenants may be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BundleKey {
    tenant: TenantId,
    id: BundleUuid,
}

/// The bundles with waiting jobs.
#[derive(Debug, Default)]
pub(super) struct OpenBundles {
    bundles: BTreeMap<BundleKey, OpenBundle>,
    /// Bundles that are not complete, by the moment at which they are given up.
    ends: BTreeSet<(MonotonicTime, BundleKey)>,
}

#[derive(Debug)]
struct OpenBundle {
    size: u32,
    accelerator: Arc<str>,
    /// The jobs that wait.
    jobs: BTreeSet<JobUuid>,
    /// When the bundle is given up; `None`: it is complete.
    until: Option<MonotonicTime>,
}

impl OpenBundles {
    pub(super) fn next_wake(&self) -> Option<MonotonicTime> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Number of waiting jobs, and of all.
    pub(super) fn count(&self, key: BundleKey) -> (usize, u32) {
        self.bundles.get(&key).map_or((0, 0), |bundle| (bundle.jobs.len(), bundle.size))
    }

    /// A job does not wait any more, or was granted a slot.
    pub(super) fn leave(&mut self, key: Option<BundleKey>, job: JobUuid) {
        if let Some(key) = key
            && let Some(bundle) = self.bundles.get_mut(&key)
        {
            bundle.jobs.remove(&job);
            if bundle.jobs.is_empty() {
                self.set_end(key, None);
                self.bundles.remove(&key);
            }
        }
    }

    /// Sets when a bundle is given up.
    fn set_end(&mut self, key: BundleKey, until: Option<MonotonicTime>) {
        if let Some(bundle) = self.bundles.get_mut(&key) {
            if let Some(before) = std::mem::replace(&mut bundle.until, until) {
                self.ends.remove(&(before, key));
            }
            self.ends.extend(until.map(|until| (until, key)));
        }
    }

    fn jobs(&self, key: BundleKey) -> Vec<JobUuid> {
        self.bundles.get(&key).into_iter().flat_map(|bundle| &bundle.jobs).copied().collect()
    }

    /// All bundles: number of jobs, and the jobs that wait.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (BundleKey, u32, &BTreeSet<JobUuid>)> {
        self.bundles.iter().map(|(key, bundle)| (*key, bundle.size, &bundle.jobs))
    }
}

impl Job {
    pub(super) fn bundle(&self) -> Option<BundleKey> {
        self.asked.wanted.bundle.map(|Bundle { id, .. }| BundleKey { tenant: self.tenant, id })
    }
}

impl Policy {
    /// A job of a bundle waits.
    pub(super) fn enter_bundle(&mut self, uuid: JobUuid, bundle: Bundle, quotas: Quotas, now: Moment) {
        let Some(job) = self.jobs.get(&uuid) else { return };
        let accelerator = Arc::clone(&job.asked.wanted.accelerator);
        let (key, size) = (BundleKey { tenant: job.tenant, id: bundle.id }, bundle.size);
        if let Entry::Vacant(new) = self.bundles.bundles.entry(key) {
            let (accelerator, jobs) = (Arc::clone(&accelerator), BTreeSet::new());
            new.insert(OpenBundle { size, accelerator, jobs, until: None });
            self.bundles.set_end(key, Some(now.now + COMPLETE_TIMEOUT));
        }
        let Some(open) = self.bundles.bundles.get_mut(&key) else { return };
        if open.size != size || open.accelerator != accelerator || open.jobs.len() >= size as usize {
            let message =
                format!("the bundle has {} jobs of {}, and this one is another", open.size, open.accelerator);
            return self.refuse(uuid, CancelCause::Incomplete, message);
        }
        open.jobs.insert(uuid);
        let is_complete = open.jobs.len() == size as usize;
        self.set_stage(uuid, Stage::Bundle(key));
        if is_complete {
            self.queue_bundle(key, uuid, quotas, now);
        }
    }

    /// All jobs of a bundle have come: the bundle waits in the pool, from the arrival of the last one.
    fn queue_bundle(&mut self, key: BundleKey, last: JobUuid, quotas: Quotas, now: Moment) {
        self.bundles.set_end(key, None);
        let Some(job) = self.jobs.get(&last) else { return };
        let (home, variants, classes) = (job.home, Arc::clone(&job.variants), job.classes);
        let (accelerator, mut since) = (job.accelerator, job.since);
        let uuids = self.bundles.jobs(key);
        let mut jobs = Vec::with_capacity(uuids.len());
        for uuid in &uuids {
            let id = self.new_pool_job(*uuid);
            let Some(job) = self.jobs.get_mut(uuid) else { continue };
            (job.variants, job.classes, job.accelerator) = (Arc::clone(&variants), classes, accelerator);
            job.stage = Stage::Pool(id);
            since = since.max(job.since);
            jobs.push(PoolJob { id, tenant: key.tenant, home, size: job.size, accelerator, classes });
        }
        let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        match self.pool.enter_bundle(jobs, Arrival { since, quotas }, pool_time(now.now)) {
            Ok(actions) => self.act(actions, now),
            Err(error) => {
                for (uuid, id) in uuids.into_iter().zip(ids) {
                    self.pool_jobs.remove(&id);
                    self.bundles.leave(Some(key), uuid);
                    self.refuse(uuid, cause(&error), error.to_string());
                }
            }
        }
    }

    /// A job leaves a bundle that waits in the pool: the others wait for another one.
    pub(super) fn leave_bundle(&mut self, key: BundleKey, job: JobUuid, now: MonotonicTime) {
        self.bundles.leave(Some(key), job);
        self.bundles.set_end(key, Some(now + COMPLETE_TIMEOUT));
        for uuid in self.bundles.jobs(key) {
            if let Some(other) = self.jobs.get_mut(&uuid)
                && let Stage::Pool(pool_job) = other.stage
            {
                self.pool_jobs.remove(&pool_job);
                other.stage = Stage::Bundle(key);
            }
        }
    }

    /// Gives up the bundles whose jobs have not all come in time.
    pub(super) fn give_up_bundles(&mut self, now: MonotonicTime) {
        while let Some((at, key)) = self.bundles.ends.first().copied()
            && at <= now
        {
            self.bundles.set_end(key, None);
            let (come, size) = self.bundles.count(key);
            let message =
                format!("for a minute only {come} of the {size} jobs of the bundle have waited for slots");
            for job in self.bundles.jobs(key) {
                let message = message.clone();
                // The job leaves the bundle when the broker has cancelled it.
                self.decisions.push(Decision::Cancel { job, why: CancelCause::Incomplete, message });
            }
        }
    }
}

//! Jobs whose leases have ended a short while ago: they may want the rest whatever the quotas are.

use fpga_core::units::MonotonicTime;
use fpga_pool_leases::ids::JobUuid;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs, by id and by the moment at which they are forgotten.
#[derive(Debug, Default)]
pub(super) struct Returning {
    jobs: BTreeMap<JobUuid, MonotonicTime>,
    ends: BTreeSet<(MonotonicTime, JobUuid)>,
}

impl Returning {
    pub(super) fn add(&mut self, job: JobUuid, until: MonotonicTime) {
        if let Some(before) = self.jobs.insert(job, until) {
            self.ends.remove(&(before, job));
        }
        self.ends.insert((until, job));
    }

    pub(super) fn contains(&self, job: JobUuid) -> bool {
        self.jobs.contains_key(&job)
    }

    pub(super) fn forget(&mut self, now: MonotonicTime) {
        while let Some((until, job)) = self.ends.first().copied()
            && until <= now
        {
            self.ends.pop_first();
            self.jobs.remove(&job);
        }
    }
}

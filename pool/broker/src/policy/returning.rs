//! Jobs whose leases have ended a short while ago: they may want the rest whatever the quotas are.

use fpga_core::units::MonotonicTime;
use fpga_pool_leases::ids::JobUuid;
use std::collections::{BTreeMap, BTreeSet};

/// The jobs, by id and by the moment at which they are forgotten.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// Until when, and the bytes for which the job had its lease.
    jobs: BTreeMap<JobUuid, (MonotonicTime, u64)>,
    ends: BTreeSet<(MonotonicTime, JobUuid)>,
}

impl Returning {
    pub(super) fn add(&mut self, job: JobUuid, bytes: u64, until: MonotonicTime) {
        if let Some((before, _)) = self.jobs.insert(job, (until, bytes)) {
            self.ends.remove(&(before, job));
        }
        self.ends.insert((until, job));
    }

    /// The bytes for which a job had its lease, if it is one that may come back.
    pub(super) fn bytes(&self, job: JobUuid) -> Option<u64> {
        self.jobs.get(&job).map(|(_, bytes)| *bytes)
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

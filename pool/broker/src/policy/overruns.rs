//! Jobs that have gone on after their last byte.
//!
//! What is beyond the bytes that a job has named is as good as another job: it arrives when the broker hears of it, and is
//! as large as what was beyond. So nobody comes first by naming too small a size, or by showing the ticket of bytes that
//! are done. A honest client says so itself: its next Want names the bytes that are left, and shows no ticket.

use super::{Holder, Policy, Stage, pool_time};
use fpga_cluster::shared_pool::Slot;
use fpga_core::units::{Millis, Moment, MonotonicTime};
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::lease::Usage;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bytes that a job may use beyond those that it has named: a piece (P-6). The last one is filled up to a block.
const TOLERANCE: u64 = 4_000_000;

/// Time for which a job is remembered that neither waits nor has a slot.
const REMEMBERED: Millis = Millis::from_secs(600);

/// Maximum number of jobs that are remembered. The oldest ones are forgotten.
const MOST_JOBS: usize = 100_000;

/// What is beyond the bytes that a job has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overrun {
    /// When it arrived, on the pool's clock.
    pub(super) since: Duration,
    /// Its size, as far as it is known.
    pub(super) bytes: u64,
}

/// The jobs with bytes beyond those that they have named.
#[derive(Debug, Default)]
pub(super) struct Overruns {
    jobs: BTreeMap<JobUuid, (Overrun, MonotonicTime)>,
    ends: BTreeSet<(MonotonicTime, JobUuid)>,
}

/// The bytes that a lease has used beyond those that its job has named; `None` if there are none to speak of.
pub(super) fn beyond(named: u64, usage: Usage) -> Option<u64> {
    usage.bytes.checked_sub(named).filter(|bytes| *bytes > TOLERANCE)
}

impl Overruns {
    pub(super) fn get(&self, job: JobUuid) -> Option<Overrun> {
        self.jobs.get(&job).map(|(overrun, _)| *overrun)
    }

    fn set(&mut self, job: JobUuid, overrun: Overrun, now: MonotonicTime) {
        let until = now + REMEMBERED;
        if let Some((_, before)) = self.jobs.insert(job, (overrun, until)) {
            self.ends.remove(&(before, job));
        }
        self.ends.insert((until, job));
        while self.jobs.len() > MOST_JOBS
            && let Some((_, oldest)) = self.ends.pop_first()
        {
            self.jobs.remove(&oldest);
        }
    }

    /// Forgets the jobs of which nothing was heard for long, unless they are still there.
    pub(super) fn forget(&mut self, now: MonotonicTime, is_there: impl Fn(JobUuid) -> bool) {
        while let Some((until, job)) = self.ends.first().copied()
            && until <= now
        {
            self.ends.pop_first();
            match self.get(job).filter(|_| is_there(job)) {
                Some(overrun) => self.set(job, overrun, now),
                None => {
                    self.jobs.remove(&job);
                }
            }
        }
    }
}

impl Policy {
    /// A manager has told what the lease in a slot has used.
    pub(super) fn check_size(&mut self, place: Slot, now: Moment) {
        let Some(slot) = self.slots.get(&place) else { return };
        if let Holder::Job { job, .. } = slot.holder
            && let Some(bytes) = beyond(slot.named, slot.usage)
        {
            self.goes_beyond(job, bytes, now);
        }
    }

    fn goes_beyond(&mut self, job: JobUuid, bytes: u64, now: Moment) {
        let known = self.overruns.get(job);
        let bytes = bytes.max(known.map_or(0, |known| known.bytes));
        let waits_since = self.jobs.get(&job).filter(|job| job.stage != Stage::Granted).map(|job| job.since);
        let since = match (known, waits_since) {
            // The job waits for its further bytes already.
            (Some(known), Some(since)) if since >= known.since => known.since,
            _ => pool_time(now.now),
        };
        self.overruns.set(job, Overrun { since, bytes }, now.now);
        if waits_since.is_some_and(|waits_since| waits_since < since) {
            self.arrives_anew(job, now);
        }
    }

    /// A job that waits loses its place, before its former slot is offered. [`Self::update_jobs`] queues it again.
    fn arrives_anew(&mut self, uuid: JobUuid, now: Moment) {
        let Some(job) = self.jobs.get(&uuid) else { return };
        let bundle = job.bundle();
        match job.stage {
            Stage::Pool(pool_job) => self.leave_pool(uuid, pool_job, bundle, now),
            Stage::Bundle(_) => self.bundles.leave(bundle, uuid),
            Stage::Group(_) | Stage::NoClass { .. } | Stage::Granted | Stage::Anew => return,
        }
        self.set_stage(uuid, Stage::Anew);
        self.is_outdated = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_remembered_while_it_is_there_and_for_ten_minutes_afterwards() {
        let mut overruns = Overruns::default();
        let overrun = Overrun { since: Duration::from_secs(7), bytes: 9 };
        overruns.set(JobUuid(1), overrun, MonotonicTime(0));
        overruns.forget(MonotonicTime(600_000), |_| true);
        overruns.forget(MonotonicTime(1_199_999), |_| false);
        assert_eq!(overruns.get(JobUuid(1)), Some(overrun));
        overruns.forget(MonotonicTime(1_200_000), |_| false);
        assert!(overruns.get(JobUuid(1)).is_none() && overruns.ends.is_empty());
    }

    #[test]
    fn the_oldest_ones_are_forgotten_when_there_are_too_many() {
        let mut overruns = Overruns::default();
        let overrun = Overrun { since: Duration::ZERO, bytes: 9 };
        for job in 0..=MOST_JOBS as u128 {
            overruns.set(JobUuid(job), overrun, MonotonicTime(5));
        }
        assert_eq!((overruns.jobs.len(), overruns.ends.len()), (MOST_JOBS, MOST_JOBS));
        assert!(overruns.get(JobUuid(0)).is_none());
    }
}

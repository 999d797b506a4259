//! Bundles: jobs that get their first slots at the same time or not at all.

use super::Engine;
use crate::error::Error;
use fpga_core::units::MonotonicTime;
use fpga_pool_leases::client::Event;
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::lease::Bundle;

impl Engine {
    /// A job has an offer, and with it all jobs of its bundle were granted slots.
    pub(super) fn leave_bundle_of(&mut self, job: JobUuid) {
        if let Some(bundle) = self.jobs.get(&job).and_then(|entry| entry.machine.bundle()) {
            self.leave_bundle(bundle);
        }
    }

    /// Lets jobs ask again whose offers have not come with those of their bundles.
    pub(super) fn ask_by_themselves(&mut self, now: MonotonicTime) {
        let jobs: Vec<JobUuid> = self.jobs.keys().copied().collect();
        for job in jobs {
            let actions = self.jobs.get_mut(&job).map(|entry| entry.machine.ask_by_itself());
            self.carry_out(job, actions.unwrap_or_default(), now);
        }
    }

    /// A job has ended before its bundle was granted: the others end for the same reason.
    pub(super) fn end_bundle(&mut self, bundle: Bundle, error: &Error, now: MonotonicTime) {
        for job in self.leave_bundle(bundle) {
            if let Some(run) = self.owners.runs.get_mut(&job) {
                run.fail(error.clone());
            }
            self.tell(job, Event::Cancel, now);
        }
    }

    /// Returns the jobs of the bundle.
    fn leave_bundle(&mut self, bundle: Bundle) -> Vec<JobUuid> {
        let of_bundle = self.jobs.iter_mut().filter(|(_, entry)| entry.machine.bundle() == Some(bundle));
        let left = of_bundle.map(|(job, entry)| {
            entry.machine.leave_bundle();
            *job
        });
        left.collect()
    }
}

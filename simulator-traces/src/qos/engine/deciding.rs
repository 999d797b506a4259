//! Decisions when a job arrives or ends, and at the end of a period. `fpga_cluster::qos` makes them.

use super::{Engine, Policy, Sample, Stage};
use fpga_cluster::pool::TenantId;
use fpga_cluster::qos::JobId;
use fpga_cluster::qos::controller::{ActionQueue, JobProgress};
use fpga_cluster::qos::groups::{ClassState, Jobs, NewGroup};
use std::time::Duration;

impl Engine<'_> {
    pub(super) fn submit(&mut self, new: usize) {
        let (class, clock) = (self.class(), self.clock());
        let Some(job) = self.jobs.get(new) else { return };
        let stage = if self.policy == Policy::Fixed {
            self.give(new, job.fixed);
            Stage::Active
        } else {
            let group = NewGroup { tenant: TenantId::default(), goal: job.goal, limits: job.limits };
            match self.groups.open(id(new), group, class, clock) {
                Ok(()) => Stage::Active,
                Err(_) => Stage::Rejected,
            }
        };
        if let Some(state) = self.states.get_mut(new) {
            state.stage = stage;
        }
        self.give_all();
        self.sample();
    }

    pub(super) fn retire(&mut self, job: usize) {
        self.give(job, 0);
        self.groups.close(id(job), self.class());
        self.give_all();
    }

    pub(super) fn control(&mut self) {
        let (class, clock) = (self.class(), self.clock());
        let progress = |JobId(job): JobId| {
            let job = usize::try_from(job).ok()?;
            let (job, state) = (self.jobs.get(job)?, self.states.get(job)?);
            let queue = if state.sent < job.actions { ActionQueue::Filled } else { ActionQueue::RanEmpty };
            let busy = Duration::from_secs_f64(state.busy);
            Some(JobProgress { now: clock, done: state.done, devices: state.given, busy, queue })
        };
        self.groups.end_period(progress, class);
        self.give_all();
        self.sample();
    }

    /// The devices, all of which are for the groups: there are no jobs of a pool.
    fn class(&self) -> ClassState {
        ClassState { slots: self.machine.devices, held_by_jobs: 0, jobs: Jobs::HaveSlots }
    }

    /// Gives each job what its group may hold.
    fn give_all(&mut self) {
        for (job, state) in self.states.iter_mut().enumerate() {
            if self.policy != Policy::Fixed && state.stage == Stage::Active {
                state.given = self.groups.given(id(job));
            }
        }
    }

    fn give(&mut self, job: usize, devices: u32) {
        if let Some(state) = self.states.get_mut(job) {
            state.given = devices;
        }
    }

    pub(super) fn sample(&mut self) {
        let given = self.states.iter().map(|state| state.given).collect();
        let done = self.states.iter().map(|state| state.done).collect();
        self.run.samples.push(Sample { at: self.now, given, done });
    }
}

fn id(job: usize) -> JobId {
    JobId(job as u64)
}

//! Decisions when a job arrives or ends, and at the end of a period. `fpga_cluster::qos` makes them.

use super::{Engine, Policy, Sample, Stage};
use fpga_cluster::qos::admission::{self, Admission};
use fpga_cluster::qos::broker::{self, Bid, Surplus};
use fpga_cluster::qos::controller::{Controller, JobProgress};
use fpga_cluster::qos::edf::{self, Due};
use fpga_cluster::qos::{Goal, JobId};

impl Engine<'_> {
    pub(super) fn submit(&mut self, new: usize) {
        let clock = self.clock();
        let Some(job) = self.jobs.get(new) else { return };
        let given: u32 = self.states.iter().map(|state| state.given).sum();
        let free = self.machine.devices - given;
        let active = self.active();
        let stage = match self.policy {
            Policy::Fixed => {
                self.give(new, job.fixed);
                Stage::Active
            }
            Policy::EarliestDeadline => {
                let least = |job: &usize| self.jobs.get(*job).map_or(0, |job| job.limits.least());
                let others: u32 = active.iter().map(least).sum();
                let fits = others.saturating_add(job.limits.least()) <= self.machine.devices;
                if fits { Stage::Active } else { Stage::Rejected }
            }
            Policy::Throughput { smoothing, .. } => {
                let running = |index: &usize| {
                    let (job, state) = (self.jobs.get(*index)?, self.states.get(*index)?);
                    let request = state.request.devices;
                    Some(admission::Running {
                        id: JobId(*index as u64),
                        devices: state.given,
                        request,
                        limits: job.limits,
                    })
                };
                let running: Vec<_> = active.iter().filter_map(running).collect();
                match admission::admit(&running, free, job.limits) {
                    Admission::Admitted { devices, taken } => {
                        for (JobId(from), count) in taken {
                            let from = usize::try_from(from).unwrap_or(usize::MAX);
                            let left = self.states.get(from).map_or(0, |state| state.given - count);
                            self.give(from, left);
                        }
                        self.give(new, devices);
                        if let Some(state) = self.states.get_mut(new) {
                            state.controller = Some(Controller::new(job.goal, smoothing, clock));
                            // The need of a new job is unknown, so devices beyond its least number may be taken back.
                            state.request.devices = job.limits.least().max(1);
                        }
                        Stage::Active
                    }
                    Admission::Rejected { .. } => Stage::Rejected,
                }
            }
        };
        if let Some(state) = self.states.get_mut(new) {
            state.stage = stage;
        }
        if self.policy == Policy::EarliestDeadline {
            self.earliest_deadline();
        } else {
            self.sample();
        }
    }

    pub(super) fn earliest_deadline(&mut self) {
        let active = self.active();
        let due = |index: &usize| {
            let job = self.jobs.get(*index)?;
            match job.goal {
                Goal::Deadline { at, .. } => Some(Due { deadline: at, limits: job.limits }),
                Goal::Throughput(_) => None,
            }
        };
        let dues: Vec<Due> = active.iter().filter_map(due).collect();
        for (job, devices) in active.into_iter().zip(edf::allocate(&dues, self.machine.devices)) {
            self.give(job, devices);
        }
        self.sample();
    }

    pub(super) fn control(&mut self) {
        let clock = self.clock();
        let active = self.active();
        let mut bids = Vec::new();
        for index in &active {
            let (Some(job), Some(state)) = (self.jobs.get(*index), self.states.get_mut(*index)) else {
                continue;
            };
            let progress = JobProgress { now: clock, done: state.done, devices: state.given };
            if let Some(controller) = &mut state.controller {
                state.request = controller.observe(progress);
            }
            let surplus = match job.goal {
                Goal::Deadline { .. } => Surplus::Welcome,
                Goal::Throughput(_) => Surplus::Useless,
            };
            bids.push(Bid { request: state.request, limits: job.limits, surplus });
        }
        for (job, devices) in active.into_iter().zip(broker::allocate(&bids, self.machine.devices)) {
            self.give(job, devices);
        }
        self.sample();
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

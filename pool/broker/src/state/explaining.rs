//! Telling clients why their jobs wait, a limited number of jobs at a time: decisions don't wait for it.

use super::{Output, State};
use crate::policy::{Explanation, Round};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_pool_api::client::{ToClient, Waits};

/// Number of jobs that are looked at at once. Each takes about a microsecond.
const JOBS: usize = 256;
/// Time between two looks. So a round of 10,000 waiting jobs takes 0.4 s.
const PAUSE: Millis = Millis(5);

/// The round of explanations that is under way.
#[derive(Debug, Default)]
pub(super) struct Explaining {
    round: Round,
    next: MonotonicTime,
}

impl Explaining {
    /// Begins a round, unless one is under way.
    pub(super) fn begin(&mut self, now: MonotonicTime) {
        if self.round.is_over() {
            (self.round, self.next) = (Round::new(), now);
        }
    }

    /// When the round goes on.
    pub(super) fn next_deadline(&self) -> Option<MonotonicTime> {
        (!self.round.is_over()).then_some(self.next)
    }
}

impl State {
    /// Tells clients why their jobs wait, where that has changed, if that is due.
    pub(super) fn explain(&mut self, outputs: &mut Vec<Output>, now: MonotonicTime) {
        let Explaining { round, next } = &mut self.explaining;
        if *next > now {
            return;
        }
        *next = now + PAUSE;
        for (job, Explanation { ahead, reason }) in self.policy.new_explanations(round, JOBS) {
            if let Some(connection) = self.broker.job(job).and_then(|job| job.connection) {
                outputs.push(Output::ToClient(connection, ToClient::Waits(Waits { job, ahead, reason })));
            }
        }
    }
}

//! What of a request runs on a board (S-9): the trace says nothing about boards, so the workload's parameters do.

use super::options::{Owner, Scenario, Share, Workload};
use crate::random::Random;
use crate::time::{Micros, SimTime};
use crate::trace::{Request, Trace};

/// A request with its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// When it arrives.
    pub at: SimTime,
    /// Its function.
    pub function: u32,
    /// What it is placed with: its function or its application.
    pub unit: u32,
    /// What must be in the slot.
    pub bitstream: u32,
    /// Time on the processor.
    pub cpu: Micros,
    /// Time on the board, if it uses it.
    pub board: Option<Micros>,
}

/// Makes jobs of requests. Draws in the order of the requests only, so that all policies get the same jobs.
#[derive(Debug)]
pub struct Jobs {
    workload: Workload,
    unit: Owner,
    seed: u64,
    random: Random,
    from: SimTime,
    until: SimTime,
}

impl Jobs {
    /// Those of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            workload: scenario.workload.clone(),
            unit: scenario.placement.unit,
            seed: scenario.seed,
            random: Random::new(scenario.seed, 10),
            from: SimTime::from_secs(scenario.trace.from_day * 86_400.0),
            until: SimTime::from_secs(scenario.trace.to_day * 86_400.0),
        }
    }

    /// The next one of `trace` that lies within the scenario's days.
    pub fn next(&mut self, trace: &mut Trace) -> Option<Job> {
        loop {
            let request = trace.next()?;
            if request.at >= self.until {
                return None;
            }
            let job = self.job(&request);
            if request.at >= self.from {
                return Some(job);
            }
        }
    }

    fn job(&mut self, request: &Request) -> Job {
        let Workload { p, p_of, r, .. } = self.workload;
        let drawn = self.random.unit();
        let uses = match p_of {
            Share::Requests => drawn < p,
            Share::Functions => self.fixed(20, request.function) < p,
            Share::Applications => self.fixed(21, request.app) < p,
        };
        let long_enough = request.duration >= Micros::from_millis(self.workload.m_ms);
        let board = (uses && long_enough).then(|| request.duration.part(r));
        Job {
            at: request.at,
            function: request.function,
            unit: self.owner(self.unit, request),
            bitstream: self.bitstream(request),
            cpu: request.duration - board.unwrap_or_default(),
            board,
        }
    }

    fn bitstream(&self, request: &Request) -> u32 {
        let own = self.owner(self.workload.bitstream_of, request);
        if self.workload.functions_per_bitstream <= 1.0 {
            return own;
        }
        // So many bitstreams that on average as many functions share one.
        let owners = match self.workload.bitstream_of {
            Owner::Function => 424.0,
            Owner::Application => 119.0,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let bitstreams = (owners / self.workload.functions_per_bitstream).ceil().max(1.0) as usize;
        let drawn = Random::new(self.seed, 1_000_000 + u64::from(own)).below(bitstreams);
        u32::try_from(drawn).unwrap_or(0)
    }

    fn owner(&self, owner: Owner, request: &Request) -> u32 {
        match owner {
            Owner::Function => request.function,
            Owner::Application => request.app,
        }
    }

    /// A draw that is the same for all requests of one function or application.
    fn fixed(&self, stream: u64, of: u32) -> f64 {
        Random::new(self.seed, stream * 1_000_000 + u64::from(of)).unit()
    }
}

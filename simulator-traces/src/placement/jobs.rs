//! Splits requests into processor time and board time (S-9). Traces have no boards; the workload's parameters define
//! the split.

use super::options::{Owner, PickerOf, Routing, Scenario, Share, Workload};
use crate::random::Random;
use crate::time::{Micros, SimTime};
use crate::trace::{Request, Trace};

/// A request with its parts on the processor and on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Time of arrival.
    pub at: SimTime,
    /// Number of the function.
    pub function: u32,
    /// Number of the unit that is placed as one: the function or the application.
    pub unit: u32,
    /// Number of the bitstream that must be in the slot.
    pub bitstream: u32,
    /// Time on the processor.
    pub cpu: Micros,
    /// Time on the board; `None` if the request doesn't use it.
    pub board: Option<Micros>,
    /// Number of the picker that chooses the request's node.
    pub picker: u32,
}

/// Turns requests into jobs. Random draws depend on the requests and their order only, so that all policies get the
/// same jobs.
#[derive(Debug)]
pub struct Jobs {
    workload: Workload,
    unit: Owner,
    seed: u64,
    random: Random,
    routing: Routing,
    picking: Random,
    from: SimTime,
    until: SimTime,
}

impl Jobs {
    /// The jobs of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            workload: scenario.workload.clone(),
            unit: scenario.placement.unit,
            seed: scenario.seed,
            random: Random::new(scenario.seed, 10),
            routing: scenario.routing.clone(),
            picking: Random::new(scenario.seed, 11),
            from: SimTime::from_secs(scenario.trace.from_day * 86_400.0),
            until: SimTime::from_secs(scenario.trace.to_day * 86_400.0),
        }
    }

    /// The next job of `trace` within the scenario's days.
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
            picker: self.picker(request),
        }
    }

    fn picker(&mut self, request: &Request) -> u32 {
        let pickers = self.routing.pickers.max(1);
        match self.routing.picker_of {
            PickerOf::Request => u32::try_from(self.picking.below(pickers as usize)).unwrap_or(0),
            // Functions have numbers in no order.
            PickerOf::Function => request.function % pickers,
        }
    }

    fn bitstream(&self, request: &Request) -> u32 {
        let own = self.owner(self.workload.bitstream_of, request);
        if self.workload.functions_per_bitstream <= 1.0 {
            return own;
        }
        // The number of bitstreams that gives this mean number of functions per bitstream.
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

    /// A uniform draw that is the same for all requests of one function or application.
    fn fixed(&self, stream: u64, of: u32) -> f64 {
        Random::new(self.seed, stream * 1_000_000 + u64::from(of)).unit()
    }
}

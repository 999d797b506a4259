//! The choice of the replica that serves a request.

use super::functions::Replica;
use super::plan::{Plan, Planned};
use anyhow::{Context as _, Result};
use fpga_sim::placement::Scenario;
use fpga_sim::placement::mirror::Mirror;
use fpga_sim::time::SimTime;
use std::time::Duration;

/// Chooses replicas. It hears of all requests, as an endpoint picker does.
#[derive(Debug)]
pub(super) enum Router {
    /// Each replica in turn: for each function, the number of its requests so far.
    InTurn(Vec<usize>),
    /// The router's decision, by what the requests so far make of the boards.
    Loaded(Box<Mirror>),
}

impl Router {
    pub fn in_turn(plan: &Plan) -> Self {
        Self::InTurn(vec![0; plan.peaks.len()])
    }

    pub fn loaded(scenario: &Scenario) -> Result<Self> {
        Ok(Self::Loaded(Box::new(Mirror::new(scenario)?)))
    }

    /// Chooses one of the function's replicas for the request with this number, `now` after the start of the run.
    pub fn choose<'r>(
        &mut self,
        number: usize,
        request: &Planned,
        replicas: &'r [Replica],
        now: Duration,
    ) -> Result<&'r Replica> {
        let place = match self {
            Self::InTurn(turns) => {
                let turn = turns.get_mut(request.function).context("an unknown function")?;
                *turn += 1;
                (*turn - 1).checked_rem(replicas.len())
            }
            Self::Loaded(mirror) => {
                let nodes: Vec<u32> = replicas.iter().map(|replica| replica.node).collect();
                mirror.send(number as u64, u32::try_from(request.function)?, &nodes, moment(now))
            }
        };
        place.and_then(|place| replicas.get(place)).context("a function has no replica")
    }

    /// Notes that a request was answered.
    pub fn answered(&mut self, number: usize, now: Duration) {
        if let Self::Loaded(mirror) = self {
            mirror.answered(number as u64, moment(now));
        }
    }
}

fn moment(now: Duration) -> SimTime {
    SimTime(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

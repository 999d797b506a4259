//! The options of scenarios of kind `placement`. All have defaults: the paper's parameters (S-9, S-10) on the
//! synthetic trace, with boards and requests as this project builds them.
//!
//! Each choice that the paper leaves open is an option.

mod boards;
mod placement;
mod trace;

pub use boards::{AfterUse, Boards, Cluster, Eviction, Queue, Reconfigures, Remembers, Requests, Slots};
pub use placement::{Freshness, Lifetime, Others, PickerOf, Placement, Reach, Route, Routing, Ties};
pub use trace::{Owner, Share, Source, Trace, Workload};

use crate::error::ScenarioError;
use crate::trace::Origin;
use serde::Deserialize;

/// A scenario of kind `placement`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Read before, by [`crate::scenario`].
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// Seed of all random choices except the synthetic trace's.
    #[serde(default = "one")]
    pub seed: u64,
    /// Source of the requests.
    #[serde(default)]
    pub trace: Trace,
    /// The boards.
    #[serde(default)]
    pub cluster: Cluster,
    /// The part of a request that runs on a board.
    #[serde(default)]
    pub workload: Workload,
    /// Placement of the functions.
    #[serde(default)]
    pub placement: Placement,
    /// Age of the states that decisions see.
    #[serde(default)]
    pub freshness: Freshness,
    /// Choice of the node that serves a request.
    #[serde(default)]
    pub routing: Routing,
    /// Behaviour of the nodes' slots.
    #[serde(default)]
    pub slots: Slots,
    /// Times of the measurements.
    #[serde(default)]
    pub measure: Measure,
}

/// Times of the measurements.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Time between two samples of the nodes' windows; the paper's text says 30 s, its table 30 min.
    pub sample_s: f64,
    /// Time at the start that the outcome leaves out, in days.
    pub warm_up_days: f64,
}

impl Scenario {
    /// The source of the scenario's requests.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the path is missing.
    pub fn origin(&self) -> Result<Origin, ScenarioError> {
        let path = || {
            let missing =
                || ScenarioError::Invalid("trace.path is missing; write where the trace is".to_owned());
            self.trace.path.clone().ok_or_else(missing)
        };
        Ok(match self.trace.source {
            Source::Synthetic => Origin::Synthetic { seed: self.trace.seed, requests: self.trace.requests },
            Source::Azure2021 => Origin::Azure2021(path()?),
            Source::Azure2019 => Origin::Azure2019 { folder: path()?, seed: self.trace.seed },
        })
    }

    /// The boards of all kinds.
    #[must_use]
    pub fn all_boards(&self) -> Vec<Boards> {
        let Cluster { nodes, slots, reconfiguration_ms, reconfiguration_ms_per_mb, .. } = self.cluster;
        let model = "board".to_owned();
        let first = Boards { nodes, model, slots, reconfiguration_ms, reconfiguration_ms_per_mb };
        std::iter::once(first).chain(self.cluster.boards.iter().cloned()).collect()
    }

    /// Checks that numbers are in range.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] names the first option that is not.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let nodes: u64 = self.all_boards().iter().map(|boards| u64::from(boards.nodes)).sum();
        let [from, to] = self.workload.bitstream_mb;
        let wrong = [
            ((1..=100_000).contains(&nodes), "cluster.nodes: write 1 to 100000"),
            (
                self.all_boards().iter().all(|boards| (1..=1024).contains(&boards.slots)),
                "slots: write 1 to 1024",
            ),
            (
                self.cluster.reconfigures == Reconfigures::Slot
                    || self.all_boards().iter().all(|boards| boards.slots == 1),
                "cluster.reconfigures: a board that is reconfigured as a whole has one image; write slots = 1",
            ),
            ((0.0..=1.0).contains(&self.workload.p), "workload.p: write a share from 0 to 1"),
            ((0.0..=1.0).contains(&self.workload.r), "workload.r: write a share from 0 to 1"),
            (self.workload.m_ms >= 0.0, "workload.m_ms: write no negative time"),
            (
                from > 0.0 && to >= from && to <= 1e6,
                "workload.bitstream_mb: write two sizes, the smaller first",
            ),
            (
                (0.0..=1e6).contains(&self.placement.replica_budget),
                "placement.replica_budget: write how many replicas a unit has on average",
            ),
            (self.routing.way_ms >= 0.0, "routing.way_ms: write no negative time"),
            ((1..=100).contains(&self.routing.pickers), "routing.pickers: write 1 to 100"),
            ((1..=100).contains(&self.placement.replicas), "placement.replicas: write 1 to 100"),
            (self.trace.requests <= 1_000_000_000, "trace.requests: write at most 1000000000"),
            (self.trace.from_day >= 0.0, "trace.from_day: write a day from 0 on"),
        ];
        match wrong.iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(ScenarioError::Invalid((*what).to_owned())),
            None => Ok(()),
        }
    }
}

fn one() -> u64 {
    1
}

impl Default for Measure {
    fn default() -> Self {
        Self { sample_s: 30.0, warm_up_days: 0.0 }
    }
}

//! What a scenario of kind `placement` may say. Everything has a default: the paper's parameters (S-9, S-10) on the
//! synthetic trace, with boards and requests as this project builds them.
//!
//! Where the paper leaves a choice open, the choice is an option here.

mod boards;
mod placement;
mod trace;

pub use boards::{AfterUse, Boards, Cluster, Eviction, Queue, Remembers, Requests, Slots};
pub use placement::{Freshness, Lifetime, Others, Placement, Reach, Route, Routing, Ties};
pub use trace::{Owner, Share, Source, Trace, Workload};

use crate::scenario::ScenarioError;
use crate::trace::Origin;
use serde::Deserialize;

/// What is simulated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Looked at before this is read.
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// Of every random choice but those of the synthetic trace.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where requests come from.
    #[serde(default)]
    pub trace: Trace,
    /// The boards.
    #[serde(default)]
    pub cluster: Cluster,
    /// What of a request runs on a board.
    #[serde(default)]
    pub workload: Workload,
    /// Where functions go.
    #[serde(default)]
    pub placement: Placement,
    /// How old what is known of nodes is.
    #[serde(default)]
    pub freshness: Freshness,
    /// Which node serves a request of a function.
    #[serde(default)]
    pub routing: Routing,
    /// What happens in a node's slots.
    #[serde(default)]
    pub slots: Slots,
    /// What is measured.
    #[serde(default)]
    pub measure: Measure,
}

/// What is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Time between looks at the nodes' windows; the paper's text has 30 s, its table 30 min.
    pub sample_s: f64,
    /// Time at the start that counts for nothing.
    pub warm_up_days: f64,
}

impl Scenario {
    /// Where its requests come from.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if a path is missing.
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

    /// All kinds of boards.
    #[must_use]
    pub fn all_boards(&self) -> Vec<Boards> {
        let Cluster { nodes, slots, reconfiguration_ms, reconfiguration_ms_per_mb, .. } = self.cluster;
        let model = "board".to_owned();
        let first = Boards { nodes, model, slots, reconfiguration_ms, reconfiguration_ms_per_mb };
        std::iter::once(first).chain(self.cluster.boards.iter().cloned()).collect()
    }

    /// Whether its numbers make sense.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] says which does not.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let nodes: u64 = self.all_boards().iter().map(|boards| u64::from(boards.nodes)).sum();
        let [from, to] = self.workload.bitstream_mb;
        let wrong = [
            ((1..=100_000).contains(&nodes), "cluster.nodes: write 1 to 100000"),
            (
                self.all_boards().iter().all(|boards| (1..=1024).contains(&boards.slots)),
                "slots: write 1 to 1024",
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

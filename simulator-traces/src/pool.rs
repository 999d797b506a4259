//! One pool of slots for the jobs of all nodes (P-6): which policy, at which load, for which sizes.
//!
//! The decisions are `fpga_core::pool`'s; what is modelled here is arrivals, sizes, and data that moves through network
//! cards and DMA engines. Boards fail never and bitstreams load in no time, as in the paper.

pub mod compare;
pub mod engine;
pub mod measures;
pub mod options;
mod series;
pub mod shapes;
pub mod sharing;
pub mod thresholds;
pub mod vary;
pub mod workload;

use crate::outcome::Outcome;
use crate::scenario::ScenarioError;
use serde::Deserialize;

/// What is simulated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Looked at before this is read.
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// What it shows: the title of its table.
    #[serde(default)]
    pub title: String,
    /// How many seeds, 1 and on.
    #[serde(default = "options::five")]
    pub seeds: u64,
    /// The machines.
    #[serde(default)]
    pub cluster: options::ClusterOptions,
    /// What they have to do.
    #[serde(default)]
    pub jobs: options::JobOptions,
    /// Parameters of the resource-aware policies.
    #[serde(default)]
    pub rules: options::RuleOptions,
    /// Parameters of the workload-aware policies; what is left out is chosen by the model (P-5).
    #[serde(default)]
    pub queues: options::QueueOptions,
    /// Which policies.
    #[serde(default = "options::all_policies")]
    pub policies: Vec<options::PolicyName>,
    /// What they are compared with.
    #[serde(default)]
    pub baseline: options::PolicyName,
    /// Parameters that take several values, every one with every other.
    #[serde(default)]
    pub vary: Vec<vary::Vary>,
    /// What to show: runs, or the model's thresholds.
    #[serde(default)]
    pub show: options::Show,
}

/// Simulates it.
///
/// # Errors
/// [`ScenarioError`] if values make no sense together, or a run broke an invariant.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    match scenario.show {
        options::Show::Runs => compare::run(scenario),
        options::Show::Thresholds => shapes::run(scenario),
    }
}

#[cfg(test)]
mod tests;

//! Simulates one pool of slots for the jobs of all nodes (P-6), to compare policies, loads and sizes.
//!
//! `fpga_cluster::pool` makes the decisions; this module models arrivals, sizes, and data that moves through network
//! cards and DMA engines. As in the paper, boards never fail and bitstreams load in no time.

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

use crate::error::ScenarioError;
use crate::outcome::Outcome;
use serde::Deserialize;

/// A scenario of kind `pool`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Read before, by [`crate::scenario`].
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// Title of the table.
    #[serde(default)]
    pub title: String,
    /// Number of seeds; the runs use 1 to this number.
    #[serde(default = "options::five")]
    pub seeds: u64,
    /// The simulated machines.
    #[serde(default)]
    pub cluster: options::ClusterOptions,
    /// The simulated jobs.
    #[serde(default)]
    pub jobs: options::JobOptions,
    /// Parameters of the resource-aware policies.
    #[serde(default)]
    pub rules: options::RuleOptions,
    /// Parameters of the workload-aware policies; the model chooses those that are left out (P-5).
    #[serde(default)]
    pub queues: options::QueueOptions,
    /// The simulated policies.
    #[serde(default = "options::all_policies")]
    pub policies: Vec<options::PolicyName>,
    /// The policy with which the others are compared.
    #[serde(default)]
    pub baseline: options::PolicyName,
    /// Parameters that take several values; all combinations are run.
    #[serde(default)]
    pub vary: Vec<vary::Vary>,
    /// The output: outcomes of runs, or the thresholds that the model chooses.
    #[serde(default)]
    pub show: options::Show,
}

/// Simulates a scenario.
///
/// # Errors
/// [`ScenarioError`] if its values are inconsistent, or a run broke an invariant.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    match scenario.show {
        options::Show::Runs => compare::run(scenario),
        options::Show::Thresholds => shapes::run(scenario),
    }
}

#[cfg(test)]
mod tests;

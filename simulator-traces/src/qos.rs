//! Simulates devices that are allocated by deadline and throughput goals: jobs of many equal actions share one
//! set of devices.
//!
//! `fpga_cluster::qos` makes the decisions; this module models devices that run actions, groups that shrink only between
//! two actions, and an interconnect that all devices share.

pub mod engine;
pub mod options;
mod series;
pub mod splits;
pub mod traces;

use crate::error::ScenarioError;
use crate::outcome::Outcome;
use serde::Deserialize;

/// A scenario of kind `qos`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Read before, by [`crate::scenario`].
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// Title of the table.
    #[serde(default)]
    pub title: String,
    /// The simulated machine.
    #[serde(default)]
    pub devices: options::DeviceOptions,
    /// Parameters of the throughput policy.
    #[serde(default)]
    pub control: options::ControlOptions,
    /// The jobs.
    pub jobs: Vec<options::JobOptions>,
    /// The simulated policies.
    #[serde(default = "options::both_policies")]
    pub policies: Vec<options::PolicyName>,
    /// The output.
    #[serde(default)]
    pub show: options::Show,
}

/// Simulates a scenario.
///
/// # Errors
/// [`ScenarioError`] if its values are inconsistent, or a run broke an invariant.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    match scenario.show {
        options::Show::Goals => traces::run(scenario),
        options::Show::Splits => splits::run(scenario),
    }
}

#[cfg(test)]
mod tests;

//! Devices handed out by deadline and throughput goals: jobs of many equal actions on one set of devices.
//!
//! The decisions are `fpga_core::qos`'s; what is modelled here is devices that run actions, groups that shrink only
//! between actions, and an interconnect that all share.

pub mod engine;
pub mod options;
mod series;
pub mod splits;
pub mod traces;

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
    /// The machine.
    #[serde(default)]
    pub devices: options::DeviceOptions,
    /// Parameters of the throughput policy.
    #[serde(default)]
    pub control: options::ControlOptions,
    /// The jobs.
    pub jobs: Vec<options::JobOptions>,
    /// Which policies.
    #[serde(default = "options::both_policies")]
    pub policies: Vec<options::PolicyName>,
    /// What to show.
    #[serde(default)]
    pub show: options::Show,
}

/// Simulates it.
///
/// # Errors
/// [`ScenarioError`] if values make no sense together, or a run broke an invariant.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    match scenario.show {
        options::Show::Goals => traces::run(scenario),
        options::Show::Splits => splits::run(scenario),
    }
}

#[cfg(test)]
mod tests;

//! Simulates devices that are allocated by deadline and throughput goals: jobs of many equal actions share one
//! set of devices.
//!
//! `fpga_cluster::qos` makes the decisions; this module models devices that run actions, groups that shrink only between
//! two actions, and an interconnect that all devices share.

pub mod engine;
pub mod options;
mod scenario;
mod series;
pub mod splits;
pub mod traces;

pub use scenario::Scenario;

use crate::error::ScenarioError;
use crate::outcome::Outcome;

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

//! Simulates one pool of slots for the jobs of all nodes (P-6), to compare policies, loads and sizes.
//!
//! `fpga_cluster::pool` makes the decisions; this module models arrivals, sizes, and data that moves through network
//! cards and DMA engines. As in the paper, boards never fail and bitstreams load in no time. Groups with goals (Q) may have
//! slots of the same pool.

pub mod compare;
pub mod engine;
pub mod goals;
pub mod measures;
pub mod options;
mod scenario;
mod series;
pub mod shapes;
pub mod sharing;
pub mod tenants;
pub mod thresholds;
mod vary;
pub mod workload;

pub use scenario::Scenario;

use crate::error::ScenarioError;
use crate::outcome::Outcome;

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

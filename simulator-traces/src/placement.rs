//! Simulates functions that are placed on nodes with FPGA boards, and their requests (S-9, S-10). `fpga-core` makes
//! the decisions under a simulated clock.

pub mod collector;
pub mod engine;
pub mod jobs;
mod known_boards;
mod lookahead;
mod measures;
mod memory;
mod mover;
pub mod node;
pub mod options;
pub mod placer;
pub mod served;
#[cfg(test)]
mod tests;
mod units;

pub use options::Scenario;

use crate::error::ScenarioError;
use crate::outcome::Outcome;
use crate::trace::Trace;

/// Simulates a scenario.
///
/// # Errors
/// [`ScenarioError`] if the scenario is invalid, its trace can't be used, or an invariant was broken.
pub fn run(scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    let mut trace = Trace::open(&scenario.origin()?)?;
    engine::Engine::new(scenario)?.run(&mut trace)
}

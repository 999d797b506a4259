//! Functions that are placed on nodes with FPGA boards, and their requests (S-9, S-10): the production decisions of
//! `fpga-core` under a simulated clock.

pub mod options;

pub use options::Scenario;

use crate::outcome::Outcome;
use crate::scenario::ScenarioError;

/// Simulates it.
///
/// # Errors
/// [`ScenarioError`] if the scenario makes no sense, its trace can't be used, or an invariant was broken.
pub fn run(_scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    Err(ScenarioError::Invalid("this version can read this kind of scenario, but not run it yet".to_owned()))
}

//! One pool of slots for the jobs of all nodes (P-6): the model is not here yet.

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
}

/// Simulates it.
///
/// # Errors
/// Always: there is no model yet.
pub fn run(_scenario: &Scenario) -> Result<Outcome, ScenarioError> {
    Err(ScenarioError::Invalid("this version has no model of kind `pool`; write `placement`".to_owned()))
}

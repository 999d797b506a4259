//! A scenario of kind `pool`, as its file describes it.

use super::vary::Parameter;
use super::{options, vary};
use crate::error::ScenarioError;
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
    /// The tenants of the jobs; without any all jobs are of one tenant.
    #[serde(default)]
    pub tenants: Vec<options::TenantOptions>,
    /// How groups pursue their goals.
    #[serde(default)]
    pub goals: options::GoalOptions,
    /// Groups with goals, which have slots of the same pool.
    #[serde(default)]
    pub groups: Vec<options::GroupOptions>,
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

impl Scenario {
    /// The scenario with another value of a parameter.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the parameter is a count and the value isn't.
    pub fn with(&self, parameter: Parameter, value: f64) -> Result<Self, ScenarioError> {
        let mut changed = self.clone();
        match parameter {
            Parameter::Load => changed.jobs.load = value,
            Parameter::MeanMb => changed.jobs.mean_mb = value,
            Parameter::Alpha => changed.jobs.alpha = value,
            Parameter::Slots => changed.cluster.slots = count(value)?,
            Parameter::Boards => changed.cluster.boards = count(value)?,
            Parameter::NicGbit => changed.cluster.nic_gbit = value,
            Parameter::SlotGbyte => changed.cluster.slot_gbyte = value,
            Parameter::OutputShare => changed.cluster.output_share = value,
            Parameter::Contention => changed.rules.contention = count(value)?,
            Parameter::Skips => changed.rules.skips = count(value)?,
            Parameter::PatienceMsPerMb => changed.rules.patience_ms_per_mb = value,
            Parameter::Count => changed.queues.count = count(value)?,
            Parameter::FirstOfMean => changed.queues.first_of_mean = Some(value),
            Parameter::Growth => changed.queues.growth = Some(value),
            Parameter::LinearFrom => changed.queues.linear_from = Some(count(value)?),
            Parameter::LinearTo => changed.queues.linear_to = Some(count(value)?),
        }
        Ok(changed)
    }
}

/// Converts a varied value to a count.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
fn count(value: f64) -> Result<u32, ScenarioError> {
    if value == value.trunc() && (0.0..=1e6).contains(&value) {
        Ok(value as u32)
    } else {
        Err(ScenarioError::invalid(format!("{value} is no count: write a whole number up to 1000000")))
    }
}

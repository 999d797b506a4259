//! The options of scenarios of kind `qos`.

use crate::error::ScenarioError;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// `[devices]`: the simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceOptions {
    /// Number of devices.
    pub count: u32,
    /// Mean duration of an action on a device, in ms.
    pub action_ms: f64,
    /// Greatest deviation of an action's duration, as a share of the mean; deviations are uniform in both directions.
    pub spread: f64,
    /// Actions per second that the interconnect can supply with data; 0: no limit.
    pub most_per_second: f64,
    /// Time to reconfigure a device that comes from another job, in ms.
    pub reconfiguration_ms: f64,
    /// Seed of the actions' durations.
    pub seed: u64,
}

/// `[control]`: parameters of the throughput policy.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlOptions {
    /// Length of a period, in ms.
    pub period_ms: f64,
    /// α: smoothing of the measured performance.
    pub alpha: f64,
    /// The rules of controllers and broker.
    pub rules: RulesName,
    /// Share of the time to a deadline by which a job wants to be done earlier; without it, that of the rules.
    pub margin: Option<f64>,
}

/// The rules of controllers and broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RulesName {
    /// The paper's.
    Printed,
    /// Those of a shared pool.
    Pool,
}

/// `[[jobs]]`: a job.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOptions {
    /// Time of arrival, in s.
    #[serde(default)]
    pub at_s: f64,
    /// Number of actions.
    pub actions: u64,
    /// Deadline, in s since the beginning of the run.
    pub deadline_s: Option<f64>,
    /// Throughput goal, in actions per second.
    pub per_second: Option<f64>,
    /// Least number of devices.
    #[serde(default)]
    pub least: u32,
    /// Greatest number of devices.
    pub most: Option<u32>,
    /// Number of devices under the policy `static`.
    pub fixed: Option<u32>,
}

/// The policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Earliest deadline first.
    Edf,
    /// Controllers and broker.
    Throughput,
    /// Each job has its `fixed` number of devices.
    Static,
}

/// The output of a scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Whether goals were met, and the allocations over time.
    #[default]
    Goals,
    /// Both policies compared with all static splits.
    Splits,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            count: 8,
            action_ms: 60.0,
            spread: 0.0,
            most_per_second: 0.0,
            reconfiguration_ms: 0.0,
            seed: 1,
        }
    }
}

impl Default for ControlOptions {
    fn default() -> Self {
        Self { period_ms: 1000.0, alpha: 0.5, rules: RulesName::Printed, margin: None }
    }
}

/// Default of `policies`.
pub(super) fn both_policies() -> Vec<PolicyName> {
    vec![PolicyName::Edf, PolicyName::Throughput]
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edf => "EDF",
            Self::Throughput => "throughput",
            Self::Static => "static",
        })
    }
}

/// Converts seconds of a scenario to a duration.
pub(super) fn seconds(value: f64, what: &str) -> Result<Duration, ScenarioError> {
    if !(0.0..=1e8).contains(&value) {
        return Err(ScenarioError::invalid(format!(
            "`{what}` is {value}: it must be 0 to 100000000 seconds"
        )));
    }
    Ok(Duration::from_secs_f64(value))
}

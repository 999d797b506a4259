//! What a scenario of kind `qos` can say, and what is made of it.

use super::Scenario;
use super::engine::{Job, Machine, Policy};
use crate::scenario::ScenarioError;
use fpga_core::qos::controller::Smoothing;
use fpga_core::qos::{Goal, Limits, Rate};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// `[devices]`: the machine.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceOptions {
    /// How many devices.
    pub count: u32,
    /// How long an action takes on a device, in ms.
    pub action_ms: f64,
    /// How far actions are from that, as a share of it, in both directions and equally likely.
    pub spread: f64,
    /// How many actions per second the interconnect can feed; 0: any number.
    pub most_per_second: f64,
    /// How long a device takes that comes from another job, in ms.
    pub reconfiguration_ms: f64,
    /// Seed of the actions' lengths.
    pub seed: u64,
}

/// `[control]`: the throughput policy.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlOptions {
    /// Period, in ms.
    pub period_ms: f64,
    /// α.
    pub alpha: f64,
}

/// `[[jobs]]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobOptions {
    /// When it comes, in s.
    #[serde(default)]
    pub at_s: f64,
    /// How many actions it has.
    pub actions: u64,
    /// By when it is to be done, in s since the start of all.
    pub deadline_s: Option<f64>,
    /// Its throughput goal.
    pub per_second: Option<f64>,
    /// The least number of devices.
    #[serde(default)]
    pub least: u32,
    /// The largest number of devices.
    pub most: Option<u32>,
    /// Its devices under the policy `static`.
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
    /// Each job has its `fixed` devices.
    Static,
}

/// What an outcome shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Whether the goals were met, and how allocations went.
    #[default]
    Goals,
    /// Both policies against every static split.
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
        Self { period_ms: 1000.0, alpha: 0.5 }
    }
}

/// The default of `policies`.
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

/// An invalid scenario.
pub(super) fn invalid(what: impl Into<String>) -> ScenarioError {
    ScenarioError::Invalid(what.into())
}

/// Seconds of a scenario as a duration.
pub(super) fn seconds(value: f64, what: &str) -> Result<Duration, ScenarioError> {
    if !(0.0..=1e8).contains(&value) {
        return Err(invalid(format!("`{what}` is {value}: it must be 0 to 100000000 seconds")));
    }
    Ok(Duration::from_secs_f64(value))
}

impl Scenario {
    /// The machine.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn machine(&self) -> Result<Machine, ScenarioError> {
        let DeviceOptions { count, action_ms, spread, most_per_second, reconfiguration_ms, seed } =
            self.devices;
        if !(1..=10_000).contains(&count)
            || !(0.001..=1e9).contains(&action_ms)
            || !(0.0..1.0).contains(&spread)
        {
            return Err(invalid(
                "`devices` needs a count of 1 to 10000, action_ms of 0.001 or more, and a spread of 0 up to 1",
            ));
        }
        if !(most_per_second >= 0.0 && (0.0..=1e9).contains(&reconfiguration_ms)) {
            return Err(invalid("`devices.most_per_second` and `reconfiguration_ms` must be 0 or more"));
        }
        let most_per_second = if most_per_second == 0.0 { f64::INFINITY } else { most_per_second };
        Ok(Machine {
            devices: count,
            action: action_ms / 1e3,
            spread,
            most_per_second,
            reconfiguration: reconfiguration_ms / 1e3,
            seed,
        })
    }

    /// The jobs, in the order in which they come.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn jobs(&self) -> Result<Vec<Job>, ScenarioError> {
        if self.jobs.is_empty() || self.jobs.len() > 1000 {
            return Err(invalid("1 to 1000 `[[jobs]]` are needed"));
        }
        let mut jobs = Vec::new();
        for job in &self.jobs {
            if !(1..=10_000_000).contains(&job.actions) {
                return Err(invalid("a job has 1 to 10000000 actions"));
            }
            let goal = match (job.deadline_s, job.per_second) {
                (Some(deadline), None) => {
                    Goal::Deadline { at: seconds(deadline, "deadline_s")?, actions: job.actions }
                }
                (None, Some(rate)) => {
                    Goal::Throughput(Rate::new(rate).map_err(|error| invalid(error.to_string()))?)
                }
                _ => return Err(invalid("a job has a goal: either `deadline_s` or `per_second`")),
            };
            let limits = Limits::new(job.least, job.most.unwrap_or(u32::MAX));
            let limits = limits.map_err(|error| invalid(error.to_string()))?;
            let at = seconds(job.at_s, "at_s")?;
            jobs.push(Job { at, actions: job.actions, goal, limits, fixed: job.fixed.unwrap_or(0) });
        }
        if jobs.windows(2).any(|pair| matches!(pair, [a, b] if a.at > b.at)) {
            return Err(invalid("`[[jobs]]` stand in the order in which they come (`at_s`)"));
        }
        Ok(jobs)
    }

    /// A policy of that name.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn policy(&self, name: PolicyName) -> Result<Policy, ScenarioError> {
        let ControlOptions { period_ms, alpha } = self.control;
        let no_deadline = self.jobs.iter().any(|job| job.deadline_s.is_none());
        match name {
            PolicyName::Edf if no_deadline => Err(invalid("EDF is for jobs that all have `deadline_s`")),
            PolicyName::Edf => Ok(Policy::EarliestDeadline),
            PolicyName::Static => {
                let sum: u64 = self.jobs.iter().map(|job| u64::from(job.fixed.unwrap_or(0))).sum();
                if sum > u64::from(self.devices.count)
                    || self.jobs.iter().any(|job| job.fixed.unwrap_or(0) == 0)
                {
                    return Err(invalid(
                        "`static` needs `fixed` devices of every job, no more than there are",
                    ));
                }
                Ok(Policy::Fixed)
            }
            PolicyName::Throughput => {
                if !(1.0..=1e9).contains(&period_ms) {
                    return Err(invalid("`control.period_ms` must be at least 1"));
                }
                let smoothing = Smoothing::new(alpha).map_err(|error| invalid(error.to_string()))?;
                Ok(Policy::Throughput { period: seconds(period_ms / 1e3, "period_ms")?, smoothing })
            }
        }
    }
}

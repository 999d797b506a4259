//! A scenario of kind `qos`, as its file describes it, and the machine, jobs and policies made of it.

use super::engine::{Job, Machine, Policy};
use super::options::{self, ControlOptions, DeviceOptions, PolicyName, RulesName, seconds};
use crate::error::ScenarioError;
use fpga_cluster::qos::rules::{Floor, GoalRules, Margin, RulesError, Smoothing};
use fpga_cluster::qos::{Goal, Limits, Rate};
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
    pub devices: DeviceOptions,
    /// Parameters of the throughput policy.
    #[serde(default)]
    pub control: ControlOptions,
    /// The jobs.
    pub jobs: Vec<options::JobOptions>,
    /// The simulated policies.
    #[serde(default = "options::both_policies")]
    pub policies: Vec<PolicyName>,
    /// The output.
    #[serde(default)]
    pub show: options::Show,
}

impl Scenario {
    /// The simulated machine.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range.
    pub fn machine(&self) -> Result<Machine, ScenarioError> {
        let DeviceOptions { count, action_ms, spread, most_per_second, reconfiguration_ms, seed } =
            self.devices;
        if !(1..=10_000).contains(&count)
            || !(0.001..=1e9).contains(&action_ms)
            || !(0.0..1.0).contains(&spread)
        {
            return Err(ScenarioError::invalid(
                "`devices` needs a count of 1 to 10000, action_ms of 0.001 or more, and a spread of 0 up to 1",
            ));
        }
        if !(most_per_second >= 0.0 && (0.0..=1e9).contains(&reconfiguration_ms)) {
            return Err(ScenarioError::invalid(
                "`devices.most_per_second` and `reconfiguration_ms` must be 0 or more",
            ));
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

    /// The jobs in the order of their arrival.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range, a job doesn't have exactly one goal, or the order is
    /// wrong.
    pub fn jobs(&self) -> Result<Vec<Job>, ScenarioError> {
        if self.jobs.is_empty() || self.jobs.len() > 1000 {
            return Err(ScenarioError::invalid("1 to 1000 `[[jobs]]` are needed"));
        }
        let mut jobs = Vec::new();
        for job in &self.jobs {
            if !(1..=10_000_000).contains(&job.actions) {
                return Err(ScenarioError::invalid("a job has 1 to 10000000 actions"));
            }
            let goal = match (job.deadline_s, job.per_second) {
                (Some(deadline), None) => {
                    Goal::Deadline { at: seconds(deadline, "deadline_s")?, actions: job.actions }
                }
                (None, Some(rate)) => Goal::Throughput(
                    Rate::new(rate).map_err(|error| ScenarioError::invalid(error.to_string()))?,
                ),
                _ => {
                    return Err(ScenarioError::invalid(
                        "a job has a goal: either `deadline_s` or `per_second`",
                    ));
                }
            };
            let limits = Limits::new(job.least, job.most.unwrap_or(u32::MAX));
            let limits = limits.map_err(|error| ScenarioError::invalid(error.to_string()))?;
            let at = seconds(job.at_s, "at_s")?;
            jobs.push(Job { at, actions: job.actions, goal, limits, fixed: job.fixed.unwrap_or(0) });
        }
        if jobs.windows(2).any(|pair| matches!(pair, [a, b] if a.at > b.at)) {
            return Err(ScenarioError::invalid("`[[jobs]]` stand in the order in which they come (`at_s`)"));
        }
        Ok(jobs)
    }

    /// The policy with this name.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the jobs lack what the policy needs, or `control` is out of range.
    pub fn policy(&self, name: PolicyName) -> Result<Policy, ScenarioError> {
        let period_ms = self.control.period_ms;
        let no_deadline = self.jobs.iter().any(|job| job.deadline_s.is_none());
        match name {
            PolicyName::Edf if no_deadline => {
                Err(ScenarioError::invalid("EDF is for jobs that all have `deadline_s`"))
            }
            PolicyName::Edf => Ok(Policy::EarliestDeadline),
            PolicyName::Static => {
                let sum: u64 = self.jobs.iter().map(|job| u64::from(job.fixed.unwrap_or(0))).sum();
                if sum > u64::from(self.devices.count)
                    || self.jobs.iter().any(|job| job.fixed.unwrap_or(0) == 0)
                {
                    return Err(ScenarioError::invalid(
                        "`static` needs `fixed` devices of every job, no more than there are",
                    ));
                }
                Ok(Policy::Fixed)
            }
            PolicyName::Throughput => {
                if !(1.0..=1e9).contains(&period_ms) {
                    return Err(ScenarioError::invalid("`control.period_ms` must be at least 1"));
                }
                let rules =
                    self.control.rules().map_err(|error| ScenarioError::invalid(error.to_string()))?;
                Ok(Policy::Throughput { period: seconds(period_ms / 1e3, "period_ms")?, rules })
            }
        }
    }
}

impl ControlOptions {
    /// The rules of controllers and broker.
    fn rules(&self) -> Result<GoalRules, RulesError> {
        let rules = match self.rules {
            RulesName::Printed => GoalRules::printed(),
            // No jobs of a pool are simulated, so they keep no slots.
            RulesName::Pool => GoalRules { floor: Floor::None, ..GoalRules::default() },
        };
        let margin = self.margin.map_or(Ok(rules.margin), Margin::new)?;
        Ok(GoalRules { smoothing: Smoothing::new(self.alpha)?, margin, ..rules })
    }
}

//! Parameters that take several values within a scenario.

use super::Scenario;
use crate::error::ScenarioError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `[[vary]]`: a parameter and its values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// The parameter.
    pub parameter: Parameter,
    /// Values of the parameter.
    pub values: Vec<f64>,
}

/// The parameters that can be varied within a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are the fields of the options")]
pub enum Parameter {
    Load,
    MeanMb,
    Alpha,
    Slots,
    Boards,
    NicGbit,
    SlotGbyte,
    OutputShare,
    Contention,
    Skips,
    PatienceMsPerMb,
    Count,
    FirstOfMean,
    Growth,
    LinearFrom,
    LinearTo,
}

impl Parameter {
    /// The name of the parameter's column in files: the name of the option.
    #[must_use]
    pub fn column(self) -> String {
        // Serializing a name can't fail.
        serde_json::to_string(&self).unwrap_or_default().trim_matches('"').to_owned()
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::MeanMb => "mean, MB",
            Self::Alpha => "α",
            Self::Slots => "slots",
            Self::Boards => "boards",
            Self::NicGbit => "NIC, Gb/s",
            Self::SlotGbyte => "slot, GB/s",
            Self::OutputShare => "output/input",
            Self::Contention => "C",
            Self::Skips => "D",
            Self::PatienceMsPerMb => "W, ms/MB",
            Self::Count => "K",
            Self::FirstOfMean => "E/mean",
            Self::Growth => "q",
            Self::LinearFrom => "k1",
            Self::LinearTo => "k2",
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_called_as_in_the_scenario() {
        assert_eq!(Parameter::PatienceMsPerMb.column(), "patience_ms_per_mb");
    }
}

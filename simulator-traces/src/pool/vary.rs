//! Parameters that take several values within a scenario.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_called_as_in_the_scenario() {
        assert_eq!(Parameter::PatienceMsPerMb.column(), "patience_ms_per_mb");
    }
}

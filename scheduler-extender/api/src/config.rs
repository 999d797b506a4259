//! The answer to `/config`: the configuration in force.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The configuration in force, and its sources.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView<P = Policy, E = Value> {
    /// The rules and the scheduler's weight.
    pub policy: P,
    /// Names of settings from flags or variables, which override the file.
    #[serde(default)]
    pub by_flag: Vec<String>,
    /// Names of settings from the file.
    #[serde(default)]
    pub by_file: Vec<String>,
    /// The configuration file, if the extender has one.
    pub file: Option<FileStatus<E>>,
}

/// The rules in force, and the extender's weight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy<R = Rules> {
    /// The rules.
    #[serde(flatten)]
    pub rules: R,
    /// The extender's `weight` in kube-scheduler's configuration, as the extender was told.
    #[serde(default, rename = "schedulerWeight")]
    pub scheduler_weight: Option<u32>,
}

/// The rules of scoring, as a reader needs them of `fpga_core::decide::DecisionRules`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Weight of each signal.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// Greatest score.
    #[serde(default = "ten")]
    pub max_score: u32,
    /// Stale policy of each signal.
    #[serde(default)]
    pub stale: BTreeMap<String, String>,
    /// Anti-herd, `on` or `off`.
    #[serde(default)]
    pub anti_herd: String,
}

/// A configuration file: its last accepted content, and the problem of a later one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileStatus<E = Value> {
    /// Path of the file.
    #[serde(default)]
    pub path: PathBuf,
    /// Time at which the content in force was taken, milliseconds since the epoch.
    #[serde(default)]
    pub taken_at_ms: u64,
    /// Why the current content of the file is not in force.
    pub problem: Option<E>,
}

/// Why the current content of a configuration file is not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProblem {
    /// Line of the error, from 1; `None` if the error concerns the whole file.
    pub line: Option<u64>,
    /// Column of the error, from 1.
    pub column: Option<u64>,
    /// The error, and what to write instead.
    pub message: String,
    /// Time since which the problem exists, milliseconds since the epoch.
    pub since_ms: u64,
}

fn ten() -> u32 {
    10
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use fpga_core::decide::DecisionRules;

    #[test]
    fn a_reader_understands_the_rules_that_core_writes() {
        let rules: Rules =
            serde_json::from_value(serde_json::to_value(DecisionRules::default()).unwrap()).unwrap();
        assert_eq!((rules.max_score, rules.anti_herd.as_str()), (10, "on"));
        assert_eq!(rules.weights["usage"], 2.0);
        assert_eq!(rules.stale["usage"], "penalise");
    }
}

//! What the extender answers, as far as it is used here. What is not known here is left out, so that an extender of
//! another version can be asked too.

use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::NodeState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `/nodes`: a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Our labels.
    #[serde(default)]
    pub labels: NodeLabels,
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: String,
    /// What brought its state.
    #[serde(default)]
    pub source: String,
    /// Why its annotation can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

/// A state, and its numbers now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// How old it is.
    pub age_ms: u64,
    /// Usage of the window that ends now.
    pub usage_ms: u64,
    /// Reconfiguration time of the window that ends now.
    pub reconfiguration_ms: u64,
    /// What the collector said.
    pub state: NodeState,
}

/// `/explain/{namespace}/{pod}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was in force.
    pub rules: Rules,
    /// Who could outvote whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<Votes>,
    /// Which pod.
    pub namespace: String,
    /// Which pod.
    pub name: String,
    /// Which pod.
    #[serde(default)]
    pub uid: String,
    /// What it asks for.
    pub requirement: serde_json::Value,
    /// What is wrong with that, if it can't be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The last filter.
    #[serde(default)]
    pub filter: Option<Decided<Filtered>>,
    /// The last prioritize.
    #[serde(default)]
    pub prioritize: Option<Decided<Scored>>,
}

/// What was in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// By signal.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// The end of the scale.
    #[serde(default = "ten")]
    pub max_score: u32,
    /// Policies by signal.
    #[serde(default)]
    pub stale: BTreeMap<String, String>,
    /// `on` or `off`.
    #[serde(default)]
    pub anti_herd: String,
}

fn ten() -> u32 {
    10
}

/// Who could outvote whom, in kube-scheduler's points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Votes {
    /// The extender's weight, as far as it was told.
    pub scheduler_weight: u32,
    /// What one of our score is worth.
    pub points_per_score: u64,
    /// The most that our score is worth.
    pub ours_at_most: u64,
    /// The most that the default plugins give together.
    pub plugins_at_most: u64,
    /// By how much they could outvote us.
    pub plugins_can_outvote_by: u64,
    /// How far our best is ahead of the next.
    pub lead: Option<u64>,
}

/// One decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided<V> {
    /// When, milliseconds since the epoch.
    pub at_ms: u64,
    /// What was decided of each node.
    pub nodes: Vec<V>,
}

/// A node in a filter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Filtered {
    /// Its name.
    pub node: String,
    /// What brought its state.
    #[serde(default)]
    pub source: String,
    /// Why it was rejected.
    #[serde(default)]
    pub rejection: Option<String>,
}

/// A node in a prioritize.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored {
    /// Its name.
    pub node: String,
    /// What brought its state.
    #[serde(default)]
    pub source: String,
    /// Its score.
    pub score: u32,
    /// Whether its state was fresh.
    #[serde(default)]
    pub freshness: String,
    /// What was measured.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// What was expected beyond.
    #[serde(default)]
    pub expected: Option<ExpectedShare>,
    /// `yes` if the score was lowered.
    #[serde(default)]
    pub capped: String,
    /// Everything else, the signals' terms among it.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// What was measured of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Usage in the window.
    pub usage_ms: u64,
    /// Reconfiguration time in the window.
    pub reconfiguration_ms: u64,
    /// Slots of the boards that were asked for, if the extender tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Age of the state.
    pub age_ms: u64,
    /// Further numbers.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// What was expected of a node beyond its measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedShare {
    /// Usage.
    pub usage_ms: u64,
    /// Of so many pods.
    pub pods: f64,
}

/// `/config`: what is in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The rules, and the weight in kube-scheduler's configuration as the extender was told.
    pub policy: Policy,
    /// The file.
    #[serde(default)]
    pub file: Option<FileStatus>,
}

/// What is in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The rules.
    #[serde(flatten)]
    pub rules: Rules,
    /// `weight` in kube-scheduler's configuration, as the extender was told.
    #[serde(default, rename = "schedulerWeight")]
    pub scheduler_weight: Option<u32>,
}

/// The configuration's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileStatus {
    /// Where it is.
    #[serde(default)]
    pub path: String,
    /// Why what it says is not in force.
    #[serde(default)]
    pub problem: Option<serde_json::Value>,
}

impl Explanation {
    /// When the last of its decisions was made, milliseconds since the epoch.
    #[must_use]
    pub fn at(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.at_ms);
        filter.max(self.prioritize.as_ref().map_or(0, |prioritize| prioritize.at_ms))
    }
}

impl NodeView {
    /// Slots of its boards.
    #[must_use]
    pub fn slots(&self) -> u64 {
        let devices = self.known.iter().flat_map(|known| &known.state.devices);
        devices.map(|device| u64::from(device.slots)).sum()
    }

    /// Whether anything of ours is on it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.known.is_some() || self.problem.is_some() || !self.labels.is_empty()
    }
}

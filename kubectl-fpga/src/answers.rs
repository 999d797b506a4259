//! The extender's answers, as far as this plugin reads them. Unknown fields are ignored, so that an extender of
//! another version can be asked too.

use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::NodeState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node, one entry of the answer to `/nodes`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// The node's labels of `fpga-scheduling.io`.
    #[serde(default)]
    pub labels: NodeLabels,
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: String,
    /// Origin of the state, for example `stream` or `watched`; empty if the extender does not tell.
    #[serde(default)]
    pub source: String,
    /// Why the node's annotation can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The node's state; `None` if the extender has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

/// A node's state, and its load in the window that ends now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// Age of the state.
    pub age_ms: u64,
    /// Slot time used in the window that ends now.
    pub usage_ms: u64,
    /// Time spent reconfiguring in the window that ends now.
    pub reconfiguration_ms: u64,
    /// The state as the collector published it.
    pub state: NodeState,
}

/// The answer to `/explain/{namespace}/{pod}`: the latest decisions for a pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The rules by which the decisions were made.
    pub rules: Rules,
    /// How far other plugins could outvote the extender; `None` if the extender does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub votes: Option<Votes>,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    #[serde(default)]
    pub uid: String,
    /// The pod's requirement.
    pub requirement: serde_json::Value,
    /// Why the requirement can't be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The last filter decision.
    #[serde(default)]
    pub filter: Option<Decided<Filtered>>,
    /// The last prioritize decision.
    #[serde(default)]
    pub prioritize: Option<Decided<Scored>>,
}

/// The rules of scoring.
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

fn ten() -> u32 {
    10
}

/// The points of the extender and of the default plugins in kube-scheduler's sum for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Votes {
    /// The extender's `weight`, as the extender was told.
    pub scheduler_weight: u32,
    /// Points per unit of the extender's score.
    pub points_per_score: u64,
    /// Points of the greatest score.
    pub ours_at_most: u64,
    /// The most points that the default plugins give together.
    pub plugins_at_most: u64,
    /// The points by which the default plugins can exceed the extender's.
    pub plugins_can_outvote_by: u64,
    /// The points between the extender's best score and the next.
    pub lead: Option<u64>,
}

/// A decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided<V> {
    /// Time of the decision, milliseconds since the epoch.
    pub at_ms: u64,
    /// The result for each node.
    pub nodes: Vec<V>,
}

/// A filter's result for a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Filtered {
    /// Name of the node.
    pub node: String,
    /// Origin of the node's state.
    #[serde(default)]
    pub source: String,
    /// Why the node was rejected; `None` if it passed.
    #[serde(default)]
    pub rejection: Option<String>,
}

/// A prioritize's result for a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored {
    /// Name of the node.
    pub node: String,
    /// Origin of the node's state.
    #[serde(default)]
    pub source: String,
    /// The node's score.
    pub score: u32,
    /// `fresh`, `stale`, `absent` or `unreadable`.
    #[serde(default)]
    pub freshness: String,
    /// Measured values; `None` if the state is not fresh.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// Usage expected beyond the measured one; `None` if no pod is expected.
    #[serde(default)]
    pub expected: Option<ExpectedShare>,
    /// `yes` if the score was lowered so that a node without fresh state doesn't look best.
    #[serde(default)]
    pub capped: String,
    /// All further fields, among them a term for each signal.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Measured values of a node's boards.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Slot time used in the window.
    pub usage_ms: u64,
    /// Time spent reconfiguring in the window.
    pub reconfiguration_ms: u64,
    /// Number of slots of the boards that the pod asks for; `None` if the extender does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Age of the state at the decision.
    pub age_ms: u64,
    /// All further fields.
    #[serde(flatten)]
    pub others: BTreeMap<String, serde_json::Value>,
}

/// Usage that is expected of pods placed a moment ago, beyond the measured usage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedShare {
    /// Slot time.
    pub usage_ms: u64,
    /// Number of pods; a pod that is not bound yet counts by its probability.
    pub pods: f64,
}

/// The answer to `/config`: the configuration in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// The rules and the scheduler's weight.
    pub policy: Policy,
    /// The configuration file, if the extender has one.
    #[serde(default)]
    pub file: Option<FileStatus>,
}

/// The rules in force, and the extender's weight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The rules.
    #[serde(flatten)]
    pub rules: Rules,
    /// The extender's `weight` in kube-scheduler's configuration, as the extender was told.
    #[serde(default, rename = "schedulerWeight")]
    pub scheduler_weight: Option<u32>,
}

/// A configuration file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileStatus {
    /// Path of the file.
    #[serde(default)]
    pub path: String,
    /// Why the contents of the file are not in force.
    #[serde(default)]
    pub problem: Option<serde_json::Value>,
}

impl Explanation {
    /// The time of the later of the two decisions, milliseconds since the epoch; 0 if there is none.
    #[must_use]
    pub fn at(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.at_ms);
        filter.max(self.prioritize.as_ref().map_or(0, |prioritize| prioritize.at_ms))
    }
}

impl NodeView {
    /// Number of slots of all boards; 0 without a state.
    #[must_use]
    pub fn slots(&self) -> u64 {
        let devices = self.known.iter().flat_map(|known| &known.state.devices);
        devices.map(|device| u64::from(device.slots)).sum()
    }

    /// Whether the node has a state, an unreadable annotation, or one of our labels.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.known.is_some() || self.problem.is_some() || !self.labels.is_empty()
    }
}

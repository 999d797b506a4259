//! The answer to `/explain/{namespace}/{pod}`: the latest decisions for a pod.

use crate::{Rules, ScoreInfluence};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The latest decisions for a pod: by the rules `R`, with the requirement `Q`, rejections `J` and scores `V`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation<T = String, R = Rules, Q = Value, J = String, V = Score> {
    /// The rules by which the decisions were made.
    pub rules: R,
    /// How far other plugins could outvote the extender; `None` if the extender does not tell.
    #[serde(default, rename = "votes", skip_serializing_if = "Option::is_none")]
    pub influence: Option<ScoreInfluence>,
    /// Namespace of the pod.
    pub namespace: T,
    /// Name of the pod.
    pub name: T,
    /// UID of the pod.
    #[serde(default)]
    pub uid: T,
    /// The pod's requirement.
    pub requirement: Q,
    /// Why the requirement can't be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<T>,
    /// The last filter.
    pub filter: Option<Decided<Filtered<T, J>>>,
    /// The prioritize after that filter. kube-scheduler makes no such call if one node passed.
    pub prioritize: Option<Decided<Scored<T, V>>>,
}

/// A decision over many nodes.
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
pub struct Filtered<T = String, J = String> {
    /// Name of the node.
    pub node: T,
    /// Origin of the node's state.
    #[serde(default)]
    pub source: T,
    /// Why the node was rejected; `None` if it passed.
    pub rejection: Option<J>,
    /// The node's boards that are out of rotation now, each with the reason; none if that is not the rejection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cordons: Vec<String>,
}

/// A prioritize's result for a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored<T = String, V = Score> {
    /// Name of the node.
    pub node: T,
    /// Origin of the node's state.
    #[serde(default)]
    pub source: T,
    /// The node's score and its terms.
    #[serde(flatten)]
    pub verdict: V,
}

/// A node's score and its terms, as a reader needs them of `fpga_core::decide::NodeScore`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Score {
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
    pub others: BTreeMap<String, Value>,
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
    pub others: BTreeMap<String, Value>,
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

impl<T, R, Q, J, V> Explanation<T, R, Q, J, V> {
    /// The time of the later of the two decisions, milliseconds since the epoch; 0 if there is none.
    #[must_use]
    pub fn at(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, |filter| filter.at_ms);
        filter.max(self.prioritize.as_ref().map_or(0, |prioritize| prioritize.at_ms))
    }
}

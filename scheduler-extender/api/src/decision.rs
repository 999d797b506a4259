//! The answer to `/decisions`: the latest decisions, without their nodes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The latest decision for a pod, one entry of the answer to `/decisions`. `/explain` has its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionView<T: Ord = String, J: Ord = String> {
    /// Namespace of the pod.
    pub namespace: T,
    /// Name of the pod.
    pub name: T,
    /// UID of the pod.
    #[serde(default)]
    pub uid: T,
    /// Time of the decision, milliseconds since the epoch.
    pub at_ms: u64,
    /// Why the requirement can't be understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<T>,
    /// The bitstreams that the pod names.
    #[serde(default)]
    pub bitstreams: Vec<String>,
    /// Nodes of the filter.
    pub candidates: usize,
    /// Nodes that passed the filter.
    pub passed: usize,
    /// Number of nodes by the reason why they were rejected.
    pub rejections: BTreeMap<J, usize>,
    /// The nodes with the greatest scores, the best first; none if kube-scheduler asked for no scores.
    pub best: Vec<BestNode<T>>,
}

/// A node of a [`DecisionView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestNode<T = String> {
    /// Name of the node.
    pub node: T,
    /// Its score.
    pub score: u32,
}

//! The answers to `/nodes` and `/nodes?since=VERSION`.

use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{NodeState, StateVersion};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;

/// A node, one entry of the answer to `/nodes`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView<T = String, L = NodeLabels, S = NodeState> {
    /// Name of the node.
    pub name: T,
    /// The node's labels of `fpga-scheduling.io`.
    #[serde(default)]
    pub labels: L,
    /// `fresh`, `stale`, `absent` or `unreadable`.
    pub freshness: T,
    /// Origin of the state, for example `stream` or `watched`; empty if the extender does not tell.
    #[serde(default)]
    pub source: T,
    /// Why the node's annotation can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The node's state; `None` if the extender has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownState<S>>,
}

/// The answer to `/nodes?since=VERSION`: what has changed of the nodes since a version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeChanges<T = String, N = NodeView> {
    /// The version that these changes lead to: the VERSION of the next question. It means nothing to another replica.
    pub version: T,
    /// Whether `nodes` are all nodes that there are: the VERSION was empty, another replica's, or too long ago.
    pub is_whole: bool,
    /// Names of nodes that have gone.
    pub gone: Vec<T>,
    /// The nodes that are new or have changed, in the order of their names.
    pub nodes: Vec<N>,
}

/// A node's state, and its load in the window that ends now.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownState<S = NodeState> {
    /// Age of the state.
    pub age_ms: u64,
    /// Version of the state, for people; the state itself has it, too.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub version: Option<StateVersion>,
    /// Slot time used in the window that ends now.
    pub usage_ms: u64,
    /// Time spent reconfiguring in the window that ends now.
    pub reconfiguration_ms: u64,
    /// The state as the collector published it.
    pub state: S,
}

impl<T, L: Borrow<NodeLabels>, S: Borrow<NodeState>> NodeView<T, L, S> {
    /// Number of slots of all boards; 0 without a state.
    #[must_use]
    pub fn slots(&self) -> u64 {
        let devices = self.known.iter().flat_map(|known| &known.state.borrow().devices);
        devices.map(|device| u64::from(device.slots)).sum()
    }

    /// Whether the node has a state, an unreadable annotation, or one of our labels.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.known.is_some() || self.problem.is_some() || !self.labels.borrow().is_empty()
    }
}

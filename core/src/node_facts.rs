//! What a decision knows of one node: its labels and its boards' state. Decisions look at nothing else of a node.

use crate::node_labels::NodeLabels;
use crate::staleness::Knowledge;

/// One node as decisions see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels; they decide only where there is no state.
    pub labels: NodeLabels,
    /// The last state that its collector published.
    pub knowledge: Knowledge,
}

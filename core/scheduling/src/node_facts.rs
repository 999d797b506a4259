//! A node as decisions see it: its labels and the state of its boards. Decisions read nothing else of a node.

use crate::moved_off::MovedOff;
use crate::node_labels::NodeLabels;
use crate::staleness::Knowledge;

/// The labels of a node and the state of its boards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Labels of the node. They decide only where there is no state.
    pub labels: NodeLabels,
    /// The last state that the node's collector published.
    pub knowledge: Knowledge,
    /// The workloads that were moved off the node a moment ago.
    pub moved_off: MovedOff,
}

//! A node as decisions see it: its labels and the state of its boards. Decisions read nothing else of a node.

use crate::moved_off::MovedOff;
use crate::node_labels::NodeLabels;
use crate::staleness::{Brief, Freshness, Knowledge, Received};
use crate::units::MonotonicTime;

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

/// A known node, as a decision gets it. The caller may keep the briefs of all nodes together.
#[derive(Debug, Clone, Copy)]
pub struct KnownNode<'n> {
    /// A copy of the brief of the node's state, or the brief itself; `None` without a state.
    pub brief: Option<&'n Brief>,
    /// Whether [`NodeFacts::moved_off`] names a workload.
    pub has_moved_off: bool,
    /// The node.
    pub facts: &'n NodeFacts,
}

impl NodeFacts {
    /// The node for a decision.
    #[must_use]
    pub fn known(&self) -> KnownNode<'_> {
        let brief = self.knowledge.received().map(Received::brief);
        KnownNode { brief, has_moved_off: !self.moved_off.is_empty(), facts: self }
    }
}

impl<'n> KnownNode<'n> {
    /// The brief of the node's state, if the state is fresh.
    #[must_use]
    #[inline]
    pub fn fresh(self, now: MonotonicTime) -> Option<&'n Brief> {
        self.brief.filter(|brief| !brief.is_stale(now))
    }

    /// Whether the knowledge of the node is fresh.
    #[must_use]
    pub fn freshness(self, now: MonotonicTime) -> Freshness {
        match self.brief {
            None => self.facts.knowledge.freshness(now),
            Some(brief) if brief.is_stale(now) => Freshness::Stale,
            Some(_) => Freshness::Fresh,
        }
    }
}

//! What a decision knows of one node: its labels and its boards' state. Nothing else of it is looked at.

use crate::names::{BOARD_LABEL, SHELL_LABEL, VENDOR_LABEL};
use crate::staleness::Knowledge;
use serde::{Deserialize, Serialize};

/// One node as decisions see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its labels; they decide only where there is no state.
    pub labels: NodeLabels,
    /// What its collector said.
    pub knowledge: Knowledge,
}

/// The labels of a node that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLabels {
    /// [`VENDOR_LABEL`].
    pub vendor: Option<String>,
    /// [`BOARD_LABEL`].
    pub board: Option<String>,
    /// [`SHELL_LABEL`].
    pub shell: Option<String>,
}

impl NodeLabels {
    /// Those of a node, found by `label`.
    pub fn of_node<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let owned = |name| label(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Self { vendor: owned(VENDOR_LABEL), board: owned(BOARD_LABEL), shell: owned(SHELL_LABEL) }
    }

    /// Whether the node has none of them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vendor.is_none() && self.board.is_none() && self.shell.is_none()
    }
}

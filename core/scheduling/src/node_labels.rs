//! The labels of a node that describe its boards.

use crate::names::{BOARD_LABEL, SHELL_LABEL, VENDOR_LABEL};
use serde::{Deserialize, Serialize};

/// The labels of a node that decisions read. An absent or empty label is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLabels {
    /// Value of [`VENDOR_LABEL`].
    pub vendor: Option<String>,
    /// Value of [`BOARD_LABEL`].
    pub board: Option<String>,
    /// Value of [`SHELL_LABEL`].
    pub shell: Option<String>,
}

impl NodeLabels {
    /// The labels of a node; `label` answers the value of the label with a given key.
    pub fn of_node<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Self {
        let owned = |name| label(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Self { vendor: owned(VENDOR_LABEL), board: owned(BOARD_LABEL), shell: owned(SHELL_LABEL) }
    }

    /// Whether the node has none of these labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.vendor.is_none() && self.board.is_none() && self.shell.is_none()
    }
}

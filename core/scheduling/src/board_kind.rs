//! Kinds of boards, as administrators write them in a catalog of bitstreams.

use crate::node_labels::NodeLabels;
use crate::node_state::DeviceState;
use serde::{Deserialize, Serialize};

/// A kind of boards. A field that is `None` matches any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoardKind {
    /// Vendor, as in the label `fpga-scheduling.io/fpga-vendor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Name of the board, as in the label `fpga-scheduling.io/board`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// Version of the shell, as in the label `fpga-scheduling.io/shell-version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
}

impl BoardKind {
    /// Whether `device` is of this kind. An empty field of the device matches no value.
    #[must_use]
    pub fn is(&self, device: &DeviceState) -> bool {
        let agrees = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        agrees(&self.vendor, &device.vendor)
            && agrees(&self.board, &device.board)
            && agrees(&self.shell, &device.shell)
    }

    /// Whether a node with these labels has boards of this kind. An absent label matches no value.
    #[must_use]
    pub fn is_labelled(&self, labels: &NodeLabels) -> bool {
        let agrees = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        agrees(&self.vendor, &labels.vendor)
            && agrees(&self.board, &labels.board)
            && agrees(&self.shell, &labels.shell)
    }
}

//! The pods of a test with a thousand nodes, in batches that have a common label.

use super::nodes::{BITSTREAM, BOARD, VENDOR};
use serde_json::{Value, json};

/// The label with the batch's name.
pub const BATCH: &str = "batch";

/// The requirements of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A board, as scheduler-config/README.md describes: resource, label, and required node affinity.
    Fpga,
    /// The same without the node affinity: right where nodes advertise the resource; where kube-scheduler ignores the
    /// resource, a mistake in a large cluster.
    FpgaWithoutAffinity,
    /// The same, and the board is of kind [`BOARD`].
    FpgaOfKind,
    /// A board by the resource alone: what a pod's author writes where nodes advertise it.
    OneLine,
    /// A board by label and node affinity, without the resource, as in the label-only wiring.
    FpgaByLabel,
    /// No board.
    Ordinary,
}

impl Kind {
    /// A pod's JSON.
    #[must_use]
    pub fn pod(self, batch: &str, index: usize) -> Value {
        let mut pod = json!({
            "metadata": {"name": format!("{batch}-{index}"), "labels": {(BATCH): batch}},
            "spec": {"containers": [{"name": "main", "image": "none"}]},
        });
        if self == Self::Ordinary {
            return pod;
        }
        if self != Self::OneLine {
            pod["metadata"]["labels"]["fpga-scheduling.io/fpga-vendor"] = json!(VENDOR);
        }
        pod["metadata"]["annotations"] = json!({"fpga-scheduling.io/bitstreams": BITSTREAM});
        if self != Self::FpgaByLabel {
            let one = json!({"fpga-scheduling.io/accelerated": "1"});
            pod["spec"]["containers"][0]["resources"] = json!({"requests": one, "limits": one});
        }
        if self == Self::FpgaOfKind {
            pod["metadata"]["labels"]["fpga-scheduling.io/board"] = json!(BOARD);
        }
        if matches!(self, Self::Fpga | Self::FpgaByLabel) {
            let vendor =
                json!({"key": "fpga-scheduling.io/fpga-vendor", "operator": "In", "values": [VENDOR]});
            pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [vendor]}],
            }}});
        }
        pod
    }
}

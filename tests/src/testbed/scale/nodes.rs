//! The nodes: equal machines, of which some have a board, and one board has the bitstream that all pods want.

use fpga_core::node_state::ANNOTATION;
use serde_json::{Value, json};

/// The bitstream that pods want.
pub const BITSTREAM: &str = "sobel";
/// The vendor of all boards.
pub const VENDOR: &str = "intel";

/// What the nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// How many there are.
    pub nodes: usize,
    /// How many of them have a board, evenly spread among the others.
    pub boards: usize,
    /// How many pods a node takes.
    pub pods_per_node: usize,
    /// Whether nodes with boards advertise the managed resource. They need not: in the shipped wiring kube-scheduler
    /// doesn't look. Without an extender it does.
    pub advertised: Advertised,
}

/// Whether nodes with boards advertise the managed resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advertised {
    /// As much of it as pods fit there.
    Yes,
    /// None.
    No,
}

/// The name of a node.
#[must_use]
pub fn name(index: usize) -> String {
    format!("node-{index:04}")
}

impl Ground {
    /// 1,000 nodes, 20 with boards: what the correctness gate is about.
    #[must_use]
    pub const fn of_the_gate() -> Self {
        Self { nodes: 1_000, boards: 20, pods_per_node: 110, advertised: Advertised::No }
    }

    /// Whether that node has a board.
    #[must_use]
    pub const fn has_board(&self, index: usize) -> bool {
        // As many multiples of nodes/boards as there are boards, whether or not it divides evenly.
        (index * self.boards) % self.nodes < self.boards
    }

    /// The nodes that have a board, in order.
    pub fn with_boards(&self) -> impl Iterator<Item = usize> {
        let ground = *self;
        (0..self.nodes).filter(move |index| ground.has_board(*index))
    }

    /// The one whose board has the bitstream: in the middle, so that it is neither first nor last in anyone's order.
    #[must_use]
    pub fn holder(&self) -> usize {
        self.with_boards().nth(self.boards / 2).unwrap_or_default()
    }

    /// A node's JSON.
    #[must_use]
    pub fn node(&self, index: usize) -> Value {
        let name = name(index);
        let mut resources = json!({"cpu": "64", "memory": "256Gi", "ephemeral-storage": "100Gi", "pods": self.pods_per_node.to_string()});
        let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        let mut annotations = json!({});
        if self.has_board(index) {
            labels["fpga-scheduling.io/fpga-vendor"] = json!(VENDOR);
            labels["fpga-scheduling.io/board"] = json!("a10");
            annotations[ANNOTATION] = json!(self.state(index, 1).to_string());
            if self.advertised == Advertised::Yes {
                resources["fpga-scheduling.io/accelerated"] = json!(self.pods_per_node.to_string());
            }
        }
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Written", "message": "by the test"});
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "status": {
                "capacity": resources, "allocatable": resources,
                "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False")],
            },
        })
    }

    /// What the collector of that node would say: usages that differ, and the bitstream on one that is idle.
    #[must_use]
    pub fn state(&self, index: usize, seq: u64) -> Value {
        let (usage, bitstreams) = if index == self.holder() {
            (0, json!([{"name": BITSTREAM, "lastUsedAgoMs": 0}]))
        } else {
            (1 + (index * 7_919) % 40_000, json!([]))
        };
        json!({
            "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 3_600_000, "windowMs": 300_000, "measuredAtMs": 1,
            "usageMs": usage, "reconfigurationMs": 0,
            "devices": [{"id": "dm0", "vendor": VENDOR, "platform": "p", "board": "a10", "shell": "1.0", "slots": 4,
                         "usageMs": usage, "reconfigurationMs": 0, "queued": 0, "healthy": true}],
            "bitstreams": bitstreams,
            "window": {"bucketMs": 10_000, "usageMs": [usage], "reconfigurationMs": [0]}, "truncated": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_boards_as_asked_for_and_one_has_the_bitstream() {
        for (nodes, boards) in [(1_000, 20), (1_000, 1_000), (1_000, 7), (3, 1)] {
            let ground = Ground { nodes, boards, ..Ground::of_the_gate() };
            assert_eq!(ground.with_boards().count(), boards, "{ground:?}");
            assert!(ground.has_board(ground.holder()), "{ground:?}");
            let text = ground.state(ground.holder(), 1).to_string();
            assert_eq!(fpga_core::node_state::decode(&text).unwrap().bitstreams.len(), 1);
        }
    }
}

//! The nodes: equal machines, some of which have a board. One board has the bitstream that all pods want.

use fpga_core::node_state::ANNOTATION;
use serde_json::{Value, json};

/// Name of the bitstream that the pods want.
pub const BITSTREAM: &str = "sobel";
/// Vendor of all boards.
pub const VENDOR: &str = "intel";
/// The kind of board that pods want which want one kind.
pub const BOARD: &str = "a10";
/// The other kind.
pub const OTHER_BOARD: &str = "s10";

/// The specification of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of nodes with a board, spread evenly.
    pub boards: usize,
    /// Number of boards of kind [`BOARD`], spread evenly among all boards; the others are of kind [`OTHER_BOARD`].
    pub wanted: usize,
    /// Most pods per node.
    pub pods_per_node: usize,
    /// Whether nodes with boards advertise the managed resource. In the shipped wiring kube-scheduler ignores it;
    /// without an extender kube-scheduler needs it.
    pub advertised: Advertised,
}

/// Whether nodes with boards advertise the managed resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advertised {
    /// The nodes advertise one unit for each pod that fits.
    Yes,
    /// The nodes advertise nothing.
    No,
}

/// The name of the node with this index.
#[must_use]
pub fn name(index: usize) -> String {
    format!("node-{index:04}")
}

impl Ground {
    /// The nodes of the correctness gate: 1,000, of which 20 have boards.
    #[must_use]
    pub const fn of_the_gate() -> Self {
        Self { nodes: 1_000, boards: 20, wanted: 20, pods_per_node: 110, advertised: Advertised::No }
    }

    /// Nodes that advertise the resource, as the node plugin does: `boards` of `nodes`, with equal boards.
    #[must_use]
    pub const fn advertising(nodes: usize, boards: usize) -> Self {
        Self { nodes, boards, wanted: boards, pods_per_node: 110, advertised: Advertised::Yes }
    }

    /// Whether the node with this index has a board.
    #[must_use]
    pub const fn has_board(&self, index: usize) -> bool {
        // This holds for as many nodes as there are boards, even if the division leaves a remainder.
        (index * self.boards) % self.nodes < self.boards
    }

    /// Indices of the nodes with a board, in order.
    pub fn with_boards(&self) -> impl Iterator<Item = usize> {
        let ground = *self;
        (0..self.nodes).filter(move |index| ground.has_board(*index))
    }

    /// Indices of the nodes with a board of kind [`BOARD`], in order.
    pub fn wanted(&self) -> impl Iterator<Item = usize> {
        let Self { boards, wanted, .. } = *self;
        self.with_boards()
            .enumerate()
            .filter(move |(rank, _)| (rank * wanted) % boards < wanted)
            .map(|(_, index)| index)
    }

    /// Index of the node whose board has the bitstream, of kind [`BOARD`]. It is in the middle, so that it is neither
    /// first nor last in any order.
    #[must_use]
    pub fn holder(&self) -> usize {
        self.wanted().nth(self.wanted / 2).unwrap_or_default()
    }

    fn board(&self, index: usize) -> &'static str {
        if self.wanted == self.boards || self.wanted().any(|wanted| wanted == index) {
            BOARD
        } else {
            OTHER_BOARD
        }
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
            labels["fpga-scheduling.io/board"] = json!(self.board(index));
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

    /// The state that the node's collector would publish. Usages differ; the bitstream is on a node that is idle.
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
            "devices": [{"id": "dm0", "vendor": VENDOR, "platform": "p", "board": self.board(index), "shell": "1.0", "slots": 4,
                         "usageMs": usage, "reconfigurationMs": 0, "queued": 0, "healthy": true}],
            "bitstreams": bitstreams,
            "window": {"bucketMs": 10_000, "usageMs": [usage], "reconfigurationMs": [0]}, "truncated": 0,
        })
    }
}

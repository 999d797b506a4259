//! DMA engines that serve one chunk after the other, as the modelled boards of a device manager do.

use super::{Cluster, EngineOrder, Transfer, whole_nanos};
use fpga_cluster::pool::NodeIndex;

/// The engine of each node, and when it has served all chunks that have come.
#[derive(Debug)]
pub(super) struct EnginesInTurn {
    free_at: Vec<u64>,
}

impl EnginesInTurn {
    pub(super) fn of_nodes(nodes: usize) -> Self {
        Self { free_at: vec![0; nodes] }
    }

    /// When a chunk is done that comes now: the engine and the slot have both done their part.
    pub(super) fn serve(&mut self, node: NodeIndex, bytes: f64, now: u64, cluster: &Cluster) -> u64 {
        let in_slot = now + whole_nanos(bytes / cluster.slot * 1e9);
        let Some(free_at) = self.free_at.get_mut(node.0 as usize) else { return in_slot };
        *free_at = now.max(*free_at) + whole_nanos(bytes / cluster.dma * 1e9);
        in_slot.max(*free_at)
    }
}

impl Transfer {
    pub(super) fn engine(self) -> EngineOrder {
        match self {
            Self::Pipelined => EngineOrder::Shared,
            Self::Chunks { engine, .. } => engine,
        }
    }
}

//! A running job: the stages by which its data goes to the slot and back, and the ports that these use.

use super::super::sharing::Use;
use super::types::{Cluster, EngineOrder, Transfer};
use fpga_cluster::pool::{NodeIndex, Place};

/// A running job.
#[derive(Debug)]
pub(super) struct Flow {
    pub job: usize,
    pub node: NodeIndex,
    pub home: NodeIndex,
    pub place: Place,
    pub uses: Vec<Use>,
    pub stage: Stage,
    /// Input bytes of the current chunk.
    pub chunk: f64,
    /// Bytes left in the current stage.
    pub left: f64,
    /// Input bytes of later chunks.
    pub later: f64,
    pub rate: f64,
    pub ends: u64,
    /// End of the current stage, if it is settled: the engine serves the chunks in turn.
    pub settled: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    All,
    There,
    Process,
    Back,
}

impl Flow {
    /// The first stage of each chunk.
    pub fn first_stage(&self, cluster: &Cluster) -> Stage {
        match (cluster.transfer, self.place) {
            (Transfer::Pipelined, _) => Stage::All,
            (Transfer::Chunks { .. }, Place::Remote) => Stage::There,
            (Transfer::Chunks { .. }, Place::Local) => Stage::Process,
        }
    }

    /// The stage after the current one; `None` after the last stage of the last chunk.
    pub fn next_stage(&self, cluster: &Cluster) -> Option<Stage> {
        match self.stage {
            Stage::There => Some(Stage::Process),
            Stage::Process if self.place == Place::Remote && cluster.output_share > 0.0 => Some(Stage::Back),
            Stage::All | Stage::Process | Stage::Back => {
                (self.later > 0.0).then(|| self.first_stage(cluster))
            }
        }
    }

    pub fn enter(&mut self, stage: Stage, cluster: &Cluster) {
        if stage == self.first_stage(cluster) {
            self.chunk = match cluster.transfer {
                Transfer::Pipelined => self.later,
                Transfer::Chunks { bytes, .. } => bytes.min(self.later),
            };
            self.later -= self.chunk;
        }
        let nodes = cluster.slots.len();
        let (node, home) = (self.node.0 as usize, self.home.0 as usize);
        let (node_in, node_out, node_dma) = (node, nodes + node, 2 * nodes + node);
        let (home_in, home_out) = (home, nodes + home);
        let one = |port: usize| Use { port, weight: 1.0 };
        self.stage = stage;
        self.settled = None;
        self.left = self.chunk;
        self.uses.clear();
        match stage {
            Stage::There => self.uses.extend([home_out, node_in].map(one)),
            Stage::Process if cluster.transfer.engine() == EngineOrder::InTurn => {}
            Stage::Process => self.uses.push(one(node_dma)),
            Stage::Back => {
                self.uses.extend([node_out, home_in].map(one));
                self.left *= cluster.output_share;
            }
            Stage::All => {
                self.uses.push(one(node_dma));
                if self.place == Place::Remote {
                    self.uses.extend([home_out, node_in].map(one));
                }
                if self.place == Place::Remote && cluster.output_share > 0.0 {
                    let back = |port: usize| Use { port, weight: cluster.output_share };
                    self.uses.extend([node_out, home_in].map(back));
                }
            }
        }
    }
}

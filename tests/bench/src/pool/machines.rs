//! The nodes of a run and their jobs: those of P-6, with smaller rates and sizes.

use anyhow::{Context as _, Result};
use fpga_cluster::pool::Bytes;
use fpga_sim::pool::Scenario;
use fpga_sim::pool::engine::{Arrival, Cluster};
use serde_json::json;

/// Bytes of a work group of AES. Sizes are multiples of it, so that the time of a launch is that of its bytes.
pub(super) const GRAIN: u64 = 4096;
/// Bytes of a work item of AES.
const ITEM: f64 = 16.0;
/// Rates and sizes of the paper: bytes per second of a network card in each direction and of a DMA engine, and the
/// mean size of a job.
const NIC: f64 = 1.25e9;
const DMA: f64 = 2.1e9;
const MEAN: f64 = 4e8;

/// The nodes and their jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machines {
    /// Number of nodes; the first ones have a board.
    pub nodes: u32,
    /// Number of nodes with a board.
    pub boards: u32,
    /// Slots of a board, all lent.
    pub slots: u32,
    /// Speed of the accelerator in a slot, as a part of the DMA engine's; `None`: as fast as the DMA engine.
    pub slot_speed: Option<f64>,
    /// Jobs of each node.
    pub jobs: u32,
    /// Bytes that come per second, over what the boards can process.
    pub load: f64,
    /// Divisor of the paper's sizes.
    pub smaller: f64,
    /// Divisor of the paper's rates.
    pub slower: f64,
    /// Number of pieces of a job of mean size.
    pub pieces: u32,
    /// How the pieces of a job follow one another.
    pub order: PieceOrder,
}

/// How the pieces of a job follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceOrder {
    /// Each is sent, processed and returned before the next one.
    InTurn,
    /// One is sent while another is processed and a third returns.
    Overlapped,
}

impl Machines {
    /// Speed of a network card in each direction, in bytes per second.
    pub fn nic(&self) -> f64 {
        NIC / self.slower
    }

    /// Bytes of a piece of a job.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    pub fn piece(&self) -> u64 {
        let exact = MEAN / self.smaller / f64::from(self.pieces);
        ((exact / GRAIN as f64).round() as u64).max(1) * GRAIN
    }

    /// How many times as long as in the paper everything takes.
    pub fn stretch(&self) -> f64 {
        self.slower / self.smaller
    }

    /// The model of a board.
    pub fn model(&self) -> String {
        let dma = DMA / self.slower;
        let slot = self.slot_speed.map(|part| format!("items_per_second = {:.3}\n", dma * part / ITEM));
        format!(
            "board = \"a board of fpga-bench pool\"\nreconfiguration = \"0ms\"\n\n[[kernel]]\n{}\
             dma_items_per_second = {:.3}\n",
            slot.unwrap_or_default(),
            dma / ITEM,
        )
    }

    /// The machines as `fpga-sim` has them.
    pub fn cluster(&self) -> Result<Cluster> {
        Ok(self.scenario()?.cluster()?)
    }

    /// The jobs of a seed, in the order of their arrival.
    pub fn arrivals(&self, seed: u64) -> Result<Vec<Arrival>> {
        let arrivals = self.scenario()?.arrivals(seed)?;
        Ok(arrivals.into_iter().map(|job| Arrival { size: self.whole(job.size), ..job }).collect())
    }

    /// The next size of whole work groups; of pieces that overlap the nearest one of whole pieces, and a work group.
    fn whole(&self, size: Bytes) -> Bytes {
        let piece = self.piece();
        Bytes(match self.order {
            PieceOrder::InTurn => size.0.next_multiple_of(GRAIN),
            PieceOrder::Overlapped => ((size.0 + piece / 2) / piece).max(1) * piece + GRAIN,
        })
    }

    fn scenario(&self) -> Result<Scenario> {
        let dma_gbyte = DMA / self.slower / 1e9;
        serde_json::from_value(json!({
            "kind": "pool",
            "cluster": {
                "nodes": self.nodes,
                "boards": self.boards,
                "slots": self.slots,
                "nic_gbit": self.nic() * 8.0 / 1e9,
                "dma_gbyte": dma_gbyte,
                "slot_gbyte": self.slot_speed.map_or(0.0, |part| dma_gbyte * part),
                "transfer": match self.order {
                    // The engine of a modelled board serves launches one after the other.
                    PieceOrder::InTurn => "chunks-in-turn",
                    PieceOrder::Overlapped => "pipelined",
                },
                "chunk_mb": self.piece() as f64 / f64::from(1 << 20),
            },
            "jobs": {
                "per_node": self.jobs,
                "load": self.load,
                "sizes": "exponential",
                "mean_mb": MEAN / 1e6 / self.smaller,
                "min_mb": 4.0 / self.smaller,
            },
        }))
        .context("the scenario is wrong")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines() -> Machines {
        Machines {
            nodes: 16,
            boards: 8,
            slots: 4,
            slot_speed: None,
            jobs: 50,
            load: 1.2,
            smaller: 100.0,
            slower: 100.0,
            pieces: 16,
            order: PieceOrder::InTurn,
        }
    }

    #[test]
    fn smaller_rates_and_sizes_leave_arrivals_where_they_were() {
        let (one, other) = (machines(), Machines { smaller: 1000.0, slower: 1000.0, ..machines() });
        let (jobs, others) = (one.arrivals(1).unwrap(), other.arrivals(1).unwrap());
        assert_eq!(jobs.len(), 800);
        for (job, other) in jobs.iter().zip(&others) {
            assert!(job.at.abs_diff(other.at) < 1_000 && job.home == other.home);
            assert!((job.size.0 as f64 / 10.0 - other.size.0 as f64).abs() <= GRAIN as f64);
        }
        assert_eq!((one.stretch(), one.piece() % GRAIN), (1.0, 0));
    }

    #[test]
    fn bytes_of_arrivals_are_the_load() {
        for order in [PieceOrder::InTurn, PieceOrder::Overlapped] {
            let machines = Machines { jobs: 2000, order, ..machines() };
            let jobs = machines.arrivals(1).unwrap();
            let bytes: u64 = jobs.iter().map(|job| job.size.0).sum();
            let per_second = bytes as f64 / (jobs.last().unwrap().at as f64 / 1e9);
            let load = per_second / (8.0 * DMA / 100.0);
            assert!((load / 1.2 - 1.0).abs() < 0.05, "{order:?}: {load}");
        }
    }

    #[test]
    fn pieces_that_overlap_are_whole_before_the_last_work_group() {
        let machines = Machines { order: PieceOrder::Overlapped, ..machines() };
        let is_whole =
            |job: &Arrival| job.size.0 > GRAIN && (job.size.0 - GRAIN).is_multiple_of(machines.piece());
        assert!(machines.arrivals(1).unwrap().iter().all(is_whole));
    }
}

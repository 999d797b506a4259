//! What a run is given, and what it tells.

use fpga_cluster::pool::{Bytes, NodeIndex, Place, TenantId};

/// The simulated machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Number of slots of each node; a node with slots has one board.
    pub slots: Vec<u32>,
    /// Speed of a node's network card in each direction, in bytes per second.
    pub nic: f64,
    /// Speed of a board's DMA engine, in bytes of input per second.
    pub dma: f64,
    /// Speed of the accelerator in a slot, in bytes of input per second.
    pub slot: f64,
    /// Bytes of output per byte of input.
    pub output_share: f64,
    /// How jobs transfer their data.
    pub transfer: Transfer,
}

/// How a job transfers its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transfer {
    /// All ways are used at the same time, as a pipeline: the slowest port limits the rate.
    Pipelined,
    /// In chunks: a chunk is sent, processed and returned before the next one is sent.
    Chunks {
        /// Bytes of input in a chunk.
        bytes: f64,
        /// How a board's DMA engine serves the chunks of several jobs.
        engine: EngineOrder,
    },
}

/// How a board's DMA engine serves the chunks of several jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineOrder {
    /// All at the same time, max-min fair (P-6).
    Shared,
    /// One after the other, in the order in which they come.
    InTurn,
}

/// A job before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival in nanoseconds.
    pub at: u64,
    /// Tenant of the job.
    pub tenant: TenantId,
    /// Node at which the job arrives and which has its data.
    pub home: NodeIndex,
    /// Bytes of input.
    pub size: Bytes,
}

/// The course of a job; times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The arrival of the job.
    pub job: Arrival,
    /// Time at which the job got its slot.
    pub started: u64,
    /// Time at which the last byte was back.
    pub ended: u64,
    /// Whether the job ran at home.
    pub place: Place,
}

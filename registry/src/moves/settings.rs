//! The administrator's settings of moves.

use clap::ValueEnum;
use fpga_cluster::moves::MovePolicy;
use fpga_core::units::Millis;
use fpga_registry_api::LibraryRules;

/// What is done about a pod that had better be elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MoveMode {
    /// Nothing.
    Off,
    /// An event on its Deployment says so.
    Suggest,
    /// It is evicted; its Deployment makes a new one.
    Evict,
}

/// The administrator's settings of moves.
#[derive(Debug, Clone)]
pub struct MoveSettings {
    /// Whether moves are suggested, carried out, or neither.
    pub mode: MoveMode,
    /// The registry's namespace, with the records.
    pub namespace: String,
    /// How much is done.
    pub policy: MovePolicy,
    /// Time for a board to come back.
    pub board_grace: Millis,
    /// Time for which a workload is kept off the node that it was moved off.
    pub moved_off_time: Millis,
    /// Time for a workload to be Ready again; later its node takes it again, and an event tells what is missing.
    pub recovery: Millis,
    /// Whether a replacement may come before the pod goes, where its owner wants it.
    pub new_before_old: NewBeforeOld,
    /// Moves that save cold starts.
    pub rebalance: Rebalance,
    /// How Bitstreams become the library.
    pub library: LibraryRules,
}

/// Whether numbers of replicas may be raised for moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewBeforeOld {
    /// A replacement comes first where the pod's owner wants it.
    Allowed,
    /// No number of replicas is changed.
    Never,
}

/// When pods are moved to save cold starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebalance {
    /// Least time between two such decisions: demand on a new board is known only after a while.
    pub interval: Millis,
    /// Least number of cold starts in an hour that a move must be expected to save; 0 for no such moves.
    pub least_per_hour: u32,
}

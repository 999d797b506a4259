//! What becomes of single requests.

use crate::time::{Micros, SimTime};

/// A request that was given a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// Time of arrival.
    pub at: SimTime,
    /// Number of the unit.
    pub unit: u32,
    /// Number of the node.
    pub node: u32,
    /// Time from arrival to getting the slot.
    pub wait: Micros,
    /// Whether its bitstream had to be loaded.
    pub start: SlotStart,
}

/// Whether a request found its bitstream in the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotStart {
    /// The bitstream was in the slot.
    Warm,
    /// The bitstream had to be loaded.
    Cold,
}

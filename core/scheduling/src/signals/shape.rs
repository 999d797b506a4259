//! The shape of a node: all that filter reads of its boards, except numbers that measure and bitstreams in slots. Most
//! nodes of a cluster share few shapes, so a decision matches a pod against each shape once.

use super::BoardMix;
use crate::device::ReconfiguredPart;
use crate::node_state::{DeviceState, Heartbeat, NodeState};
use crate::units::Millis;
use crate::utilization::Utilization;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Nodes of equal shape get the same verdict from a pod that asks for no greatest utilization and whose bitstreams none of
/// them has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Hash of the shape; two shapes share it with a probability of 2^-64. [`Shape::OWN`] for a node with left-out
    /// parts, whose verdict is its own.
    hash: u64,
    flags: Flags,
    board_mix: BoardMix,
}

/// What is true of the boards of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    /// A board would lose a bitstream that others use, if it were reconfigured as a whole.
    pub may_lose: bool,
    /// A board has as many containers as it may have.
    pub has_full_board: bool,
    /// The node plugin keeps pods of some controllers off.
    pub keeps_off: bool,
}

impl Shape {
    const OWN: u64 = 0;

    /// The shape of the boards of `state`, which differ as `board_mix` says.
    pub(super) fn of(state: &NodeState, board_mix: BoardMix) -> Self {
        let mut flags = Flags {
            keeps_off: state.plugin.as_ref().is_some_and(|plugin| !plugin.report.kept_off.is_empty()),
            ..Flags::default()
        };
        let mut hasher = DefaultHasher::new();
        let mut is_whole = !state.left_out.concerns_filter();
        for device in &state.devices {
            let loses = device.reconfigured_part == ReconfiguredPart::Board
                && !device.loaded.is_empty()
                && state.utilization(device) > Utilization::ZERO;
            let is_full = !state.has_instances_left(device);
            is_whole &= device.loaded.iter().all(|index| (*index as usize) < state.bitstreams.len());
            flags.may_lose |= loses;
            flags.has_full_board |= is_full;
            // Every other field counts, also one that is new.
            let fixed = DeviceState {
                id: String::new(),
                loaded: Vec::new(),
                usage: Millis::ZERO,
                reconfiguration: Millis::ZERO,
                queued: 0,
                ..device.clone()
            };
            (fixed, state.reported_health(device), state.offers(device), is_full, loses).hash(&mut hasher);
        }
        let is_late = state.plugin.as_ref().is_some_and(|plugin| plugin.heartbeat == Heartbeat::Late);
        is_late.hash(&mut hasher);
        let hash = if is_whole { hasher.finish() } else { Self::OWN };
        Self { hash, flags, board_mix }
    }

    /// What is true of the boards.
    pub(crate) fn flags(self) -> Flags {
        self.flags
    }

    /// How much the boards differ.
    pub(crate) fn board_mix(self) -> BoardMix {
        self.board_mix
    }

    /// The hash, if the node shares its shape with others.
    pub(crate) fn shared(self) -> Option<u64> {
        (self.hash != Self::OWN).then_some(self.hash)
    }
}

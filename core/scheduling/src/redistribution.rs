//! Whether a board that is reconfigured as a whole may lose a bitstream that others use (B-6, B-8).
//!
//! Such a board has one bitstream, and another one takes it from all who use the board. So the board is considered only
//! where no board that has the wanted bitstream passes, and it is taken only if the load that it has can be
//! *redistributed*: the free time of the other boards with its bitstream covers its utilization,
//!
//! ```text
//! Σ (1 − utilization of another board with the same bitstream) ≥ utilization of the board
//! ```
//!
//! BlastFunction's thesis prints the inequality the other way round. By that a board could be taken only if its load
//! does *not* fit on the others; its text, and the name of the step, mean what stands here.

use crate::device::{Health, ReconfiguredPart};
use crate::node_state::{DeviceState, DigestPrefix, NodeState};
use crate::requirement::Requirement;
use crate::residency;
use crate::utilization::Utilization;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The free time of all known boards, by the bitstream that they have in a slot: in thousandths of a board's time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeTime {
    by_bitstream: BTreeMap<DigestPrefix, u64>,
}

impl FreeTime {
    /// The free time of the boards of these nodes.
    #[must_use]
    pub fn of<'n>(nodes: impl IntoIterator<Item = &'n NodeState>) -> Self {
        Self::where_taken(nodes.into_iter().map(|state| ((), state)), |(), _| true)
    }

    /// As [`Self::of`], of each bitstream on the nodes that take the pods that use the bitstream.
    #[must_use]
    pub fn where_taken<'n, N: Copy>(
        nodes: impl IntoIterator<Item = (N, &'n NodeState)>,
        takes: impl Fn(N, DigestPrefix) -> bool,
    ) -> Self {
        let mut by_bitstream = BTreeMap::new();
        for (node, state) in nodes {
            for device in state.devices.iter().filter(|device| takes_load(state, device)) {
                let digests: BTreeSet<DigestPrefix> = digests(state, device).flatten().collect();
                for digest in digests.into_iter().filter(|digest| takes(node, *digest)) {
                    let free: &mut u64 = by_bitstream.entry(digest).or_default();
                    *free = free.saturating_add(state.utilization(device).free_per_mille());
                }
            }
        }
        Self { by_bitstream }
    }

    /// Whether the other boards that have the bitstream of `device` have time for the load of `device`, which belongs
    /// to `state`, one of the nodes that this was made of. True if the bitstream is not known.
    #[must_use]
    pub fn covers(&self, state: &NodeState, device: &DeviceState) -> bool {
        let own = if takes_load(state, device) { state.utilization(device).free_per_mille() } else { 0 };
        self.covers_beside(own, state, device)
    }

    /// As [`Self::covers`], where `state` is none of the nodes that this was made of.
    #[must_use]
    pub fn covers_load_of(&self, state: &NodeState, device: &DeviceState) -> bool {
        self.covers_beside(0, state, device)
    }

    fn covers_beside(&self, own: u64, state: &NodeState, device: &DeviceState) -> bool {
        digests(state, device).flatten().all(|digest| {
            let all = self.by_bitstream.get(&digest).copied().unwrap_or_default();
            all.saturating_sub(own) >= state.utilization(device).per_mille()
        })
    }
}

/// Whether a pod that gets `device` would take a bitstream from others: the whole board is reconfigured, it was used in
/// the window, and it has another bitstream than the pod's. `device` must belong to `state`. False if the pod names no
/// bitstream, and where the bitstream of the board is not known.
#[must_use]
pub fn takes_from_others(asked: &Requirement, state: &NodeState, device: &DeviceState) -> bool {
    device.reconfigured_part == ReconfiguredPart::Board
        && !device.loaded.is_empty()
        && state.utilization(device) > Utilization::ZERO
        && asked.bitstreams.iter().any(|id| !residency::holds(asked, state, device, id).may_be())
}

/// Whether pods can be placed on `device`, so that it can take the load of another board.
fn takes_load(state: &NodeState, device: &DeviceState) -> bool {
    device.health == Health::Healthy && state.offers(device)
}

/// The start of the digest of each bitstream in the slots; `None` where it is not known.
pub fn digests<'s>(
    state: &'s NodeState,
    device: &'s DeviceState,
) -> impl Iterator<Item = Option<DigestPrefix>> + 's {
    device.loaded.iter().map(|index| state.bitstreams.get(*index as usize)?.digest)
}

#[cfg(test)]
mod tests;

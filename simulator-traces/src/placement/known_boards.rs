//! The boards as an endpoint picker knows them (`routing.policy = "tracked"`): the picker's own requests correct the
//! states that the nodes publish. A request counts from the choice until its answer is back at the picker. Of several
//! pickers each has boards of its own here, which the others' requests change by those states only.

use super::collector::{clock, digest};
use super::node::Node;
use crate::time::SimTime;
use fpga_cluster::router;
use fpga_cluster::tracked_board::{Loaded, TrackedBoard};
use fpga_core::node_state::{DigestPrefix, NodeState, StateVersion};
use fpga_core::staleness::Knowledge;
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::HashMap;

/// The boards of all nodes.
#[derive(Debug, Clone)]
pub struct KnownBoards {
    boards: Vec<KnownBoard>,
    /// The bitstreams that requests asked for.
    numbers: HashMap<DigestPrefix, u32>,
}

#[derive(Debug, Clone, Default)]
struct KnownBoard {
    tracked: TrackedBoard<u32>,
    version: Option<StateVersion>,
}

impl KnownBoards {
    /// Boards of which nothing is known yet.
    #[must_use]
    pub fn new(boards: usize) -> Self {
        Self { boards: vec![KnownBoard::default(); boards], numbers: HashMap::new() }
    }

    /// Takes the states that have been received until now.
    pub fn learn(&mut self, nodes: &mut [Node], now: SimTime) {
        let numbers = &self.numbers;
        for (known, node) in self.boards.iter_mut().zip(nodes) {
            let Knowledge::Known(received) = &node.facts(now).knowledge else { continue };
            let version = Some(received.state().version());
            if known.version < version {
                known.version = version;
                known.take(received.state(), received.age(clock(now)), numbers, clock(now));
            }
        }
    }

    /// Chooses one of `replicas`, which are numbers of nodes, for a request. Returns its place among them.
    #[must_use]
    pub fn choose(&self, replicas: &[u32], bitstream: u32, now: SimTime) -> Option<usize> {
        let boards: Vec<&KnownBoard> =
            replicas.iter().map(|node| self.boards.get(*node as usize)).collect::<Option<_>>()?;
        let worth = |place: usize, resident, copies| {
            boards.get(place).map_or(0, |board| board.tracked.worth(resident, copies, clock(now)))
        };
        router::choose(boards.iter().map(|board| board.tracked.board()), bitstream, worth)
    }

    /// Records that a request is sent to a node.
    pub fn begin(&mut self, node: u32, bitstream: u32, now: SimTime) {
        self.numbers.entry(DigestPrefix::from(&digest(bitstream))).or_insert(bitstream);
        if let Some(board) = self.boards.get_mut(node as usize) {
            board.tracked.begin(bitstream, clock(now));
        }
    }

    /// Records that the answer of a request is back.
    pub fn end(&mut self, node: u32, bitstream: u32, now: SimTime) {
        if let Some(board) = self.boards.get_mut(node as usize) {
            board.tracked.end(bitstream, 1, clock(now));
        }
    }
}

impl KnownBoard {
    fn take(
        &mut self,
        state: &NodeState,
        age: Millis,
        numbers: &HashMap<DigestPrefix, u32>,
        now: MonotonicTime,
    ) {
        let Some(device) = state.devices.first() else { return };
        let loaded = device.loaded.iter().filter_map(|index| {
            let recent = state.bitstreams.get(*index as usize)?;
            let bitstream = *numbers.get(recent.digest.as_ref()?)?;
            let ago = age + recent.last_used_ago;
            Some(Loaded { bitstream, last_use: MonotonicTime(now.0.saturating_sub(ago.0)) })
        });
        self.tracked.learn(device.slots, loaded, device.queued, now);
    }
}

//! The router and the boards of a scenario for requests that are served elsewhere: a live cluster gets the simulator's
//! routing decisions.
//!
//! The mirror hears of each request when it is sent and when it has been answered, and predicts from that what the
//! slots of the boards hold, by the same decisions as a device manager.

use super::collector::{digest, number};
use super::memory::Memory;
use super::options::Scenario;
use crate::error::ScenarioError;
use crate::time::SimTime;
use fpga_board::slots::{Demand, OtherKernels, SessionId, SlotIndex, SlotTable};
use fpga_cluster::router::{self, Slot, SlotState};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

/// The boards as predicted.
#[derive(Debug)]
pub struct Mirror {
    boards: Vec<Board>,
    memory: Memory,
    /// Boards and slots of the requests that use one, by the number of the request.
    running: HashMap<u64, (u32, SlotIndex)>,
    uses: u64,
}

#[derive(Debug)]
struct Board {
    table: SlotTable,
    slots: Vec<Slot<u32>>,
    /// Numbers and bitstreams of the requests that wait for a slot.
    waiting: VecDeque<(u64, u32)>,
}

impl Mirror {
    /// Idle boards with empty slots.
    ///
    /// # Errors
    /// [`ScenarioError`] if the scenario is invalid.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        scenario.check()?;
        let mut boards = Vec::new();
        for kind in scenario.all_boards() {
            let slots = NonZeroU32::new(kind.slots)
                .ok_or_else(|| ScenarioError::invalid("a board has no slots; write at least 1"))?;
            boards.extend((0..kind.nodes).map(|_| Board::new(slots)));
        }
        let memory = Memory::new(scenario, boards.len())?;
        Ok(Self { boards, memory, running: HashMap::new(), uses: 0 })
    }

    /// Chooses one of `replicas`, which are numbers of nodes, for a request. Returns its place among them; `None` if
    /// there is no such node.
    pub fn send(&mut self, request: u64, bitstream: u32, replicas: &[u32], now: SimTime) -> Option<usize> {
        let boards: Vec<&Board> =
            replicas.iter().map(|node| self.boards.get(*node as usize)).collect::<Option<_>>()?;
        let seen = boards.iter().map(|board| board.seen());
        let worth = |place: usize, resident, copies| {
            self.memory.worth(replicas.get(place).copied().unwrap_or(0), resident, copies, now)
        };
        let place = router::choose(seen, bitstream, worth)?;
        let node = *replicas.get(place)?;
        self.memory.used(node, bitstream, now);
        self.boards.get_mut(node as usize)?.waiting.push_back((request, bitstream));
        self.start(node, now);
        Some(place)
    }

    /// Notes that a request has been answered.
    pub fn answered(&mut self, request: u64, now: SimTime) {
        let Some((node, slot)) = self.running.remove(&request) else {
            // The board took requests in another order than predicted.
            for board in &mut self.boards {
                board.waiting.retain(|(waiting, _)| *waiting != request);
            }
            return;
        };
        self.uses += 1;
        if let Some(board) = self.boards.get_mut(node as usize) {
            board.table.release(&[slot]);
            if let Some(seen) = board.slots.get_mut(slot.0 as usize) {
                (seen.state, seen.last_use) = (SlotState::Idle, self.uses);
            }
        }
        self.start(node, now);
    }

    /// Starts the requests of a board that get a slot.
    fn start(&mut self, node: u32, now: SimTime) {
        let Some(board) = self.boards.get_mut(node as usize) else { return };
        while let Some((request, bitstream)) = board.waiting.front().copied() {
            let demand = Demand::of([digest(bitstream)], OtherKernels::None);
            let memory = &self.memory;
            let worth = |digest, copies| memory.worth(node, number(&digest), copies, now);
            let Some(taken) = board.table.take_keeping(SessionId(request), &demand, worth) else { return };
            board.waiting.pop_front();
            let Some(slot) = taken.slots.first().copied() else { return };
            self.uses += 1;
            if let Some(seen) = board.slots.get_mut(slot.0 as usize) {
                *seen = Slot { resident: Some(bitstream), state: SlotState::Busy, last_use: self.uses };
            }
            if !taken.load.is_empty() {
                self.memory.loaded(node, bitstream, taken.evicted.first().map(number), now);
            }
            self.running.insert(request, (node, slot));
        }
    }
}

impl Board {
    fn new(slots: NonZeroU32) -> Self {
        let slot = Slot { resident: None, state: SlotState::Idle, last_use: 0 };
        let table = SlotTable::new(slots);
        Self { slots: vec![slot; table.len()], table, waiting: VecDeque::new() }
    }

    /// The board as the router sees it in the simulator, which does not count requests in flight.
    fn seen(&self) -> router::Board<'_, u32> {
        let waiting = self.waiting.len();
        router::Board { slots: &self.slots, waiting, in_flight: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_where_their_bitstream_is_and_nobody_waits_beside_an_idle_slot() {
        let scenario: Scenario =
            toml::from_str("kind = \"placement\"\n[cluster]\nnodes = 2\nslots = 1\n").unwrap();
        let mut mirror = Mirror::new(&scenario).unwrap();
        let at = |millis: f64| SimTime::from_secs(millis / 1e3);
        assert_eq!(mirror.send(1, 7, &[0, 1], at(0.0)), Some(0), "both are empty");
        assert_eq!(mirror.send(2, 8, &[0, 1], at(1.0)), Some(1), "the other one is busy");
        assert_eq!(mirror.send(3, 8, &[0, 1], at(2.0)), Some(0), "both are busy: the first of equal queues");
        mirror.answered(2, at(3.0));
        mirror.answered(1, at(4.0));
        mirror.answered(3, at(5.0));
        assert_eq!(mirror.send(4, 8, &[1, 0], at(6.0)), Some(0), "both have it");
        assert_eq!(mirror.send(5, 7, &[1, 0], at(7.0)), Some(1), "an idle slot, whatever it holds");
        assert_eq!(mirror.send(6, 7, &[2], at(8.0)), None, "there is no such node");
    }
}

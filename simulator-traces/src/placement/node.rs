//! One node: its slots, its queue, and its counters. The slots are the production table (S-7).

use super::collector::{Collector, Shown, digest, number};
use super::jobs::Job;
use crate::time::{Micros, SimTime};
use fpga_board::slots::{Demand, OtherKernels, SessionId, SlotIndex, SlotTable};
use fpga_cluster::router::{Board, Slot, SlotState};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// A node with a board.
#[derive(Debug)]
pub struct Node {
    /// The production table of the slots.
    slots: SlotTable,
    /// The slots as the router sees them, in order.
    pub view: Vec<Slot<u32>>,
    /// The requests that wait for a slot, the longest waiting first.
    pub waiting: VecDeque<Job>,
    /// The node's collector.
    pub collector: Collector,
    /// Time to load a bitstream, and additional milliseconds per megabyte of it.
    pub reconfiguration: (Micros, f64),
    /// Number of busy slots.
    pub busy: u32,
    /// Slot time used until `busy_since`.
    busy_time: Micros,
    busy_since: SimTime,
    /// The node's counters.
    pub done: Done,
    /// Processor time of all requests that have arrived.
    pub cpu: Micros,
}

/// The counters of a node since the beginning of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Number of requests that began on the board.
    pub started: u64,
    /// Number of requests that had to load their bitstream.
    pub cold: u64,
    /// Time spent loading bitstreams.
    pub reconfiguration: Micros,
    /// Board time of the requests that began, including loading.
    pub service: Micros,
}

/// The slot that a request was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Index of the slot.
    pub slot: u32,
    /// The bitstream that was evicted from the slot.
    pub evicted: Option<u32>,
    /// Whether the bitstream of the request was in the slot already.
    pub resident: bool,
}

impl Node {
    /// An idle node with empty slots.
    #[must_use]
    pub fn new(slots: NonZeroU32, collector: Collector, reconfiguration: (Micros, f64)) -> Self {
        let slot = Slot { resident: None, state: SlotState::Idle, last_use: 0 };
        Self {
            slots: SlotTable::new(slots),
            view: vec![slot; slots.get() as usize],
            waiting: VecDeque::new(),
            collector,
            reconfiguration,
            busy: 0,
            busy_time: Micros::ZERO,
            busy_since: SimTime::BEGIN,
            done: Done::default(),
            cpu: Micros::ZERO,
        }
    }

    /// Whether a slot is idle.
    #[must_use]
    pub fn has_room(&self) -> bool {
        (self.busy as usize) < self.view.len()
    }

    /// The board as the router sees it. Of replicas that are equal otherwise the first serves, however many requests
    /// are in flight.
    #[must_use]
    pub fn board(&self) -> Board<'_, u32> {
        Board { slots: &self.view, waiting: self.waiting.len(), in_flight: 0 }
    }

    /// Takes a slot for a bitstream as a device manager does. Bitstreams with greater `worth` are evicted later.
    /// `None` if no slot is idle.
    pub fn take<W: Ord>(
        &mut self,
        bitstream: u32,
        uses: &mut u64,
        now: SimTime,
        worth: impl Fn(u32, NonZeroU32) -> W,
    ) -> Option<Taken> {
        let view = &self.view;
        let waiting = self.waiting.len();
        self.collector.before_change(now, || shown(view, waiting));
        let demand = Demand::of([digest(bitstream)], OtherKernels::None);
        let worth = |digest, copies| worth(number(&digest), copies);
        let assignment = self.slots.take_keeping(SessionId(*uses), &demand, worth)?;
        let SlotIndex(slot) = *assignment.slots.first()?;
        self.advance(now);
        self.busy += 1;
        *uses += 1;
        let seen = self.view.get_mut(slot as usize)?;
        let before = seen.resident.replace(bitstream);
        (seen.state, seen.last_use) = (SlotState::Busy, *uses);
        let resident = assignment.load.is_empty();
        Some(Taken { slot, evicted: before.filter(|before| *before != bitstream), resident })
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: u32, uses: &mut u64, now: SimTime) {
        let view = &self.view;
        let waiting = self.waiting.len();
        self.collector.before_change(now, || shown(view, waiting));
        self.slots.release(&[SlotIndex(slot)]);
        self.advance(now);
        self.busy -= 1;
        *uses += 1;
        if let Some(seen) = self.view.get_mut(slot as usize) {
            (seen.state, seen.last_use) = (SlotState::Idle, *uses);
        }
    }

    /// Slot time used up to `now`.
    #[must_use]
    pub fn busy_time(&self, now: SimTime) -> Micros {
        self.busy_time + Micros((now - self.busy_since).0 * u64::from(self.busy))
    }

    /// Whether the production table and the router's view agree.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.slots.in_use() == self.busy as usize
            && self
                .slots
                .resident()
                .zip(&self.view)
                .all(|(is, seen)| is.map(|digest| number(&digest)) == seen.resident)
    }

    /// The slots and the queue as they are published.
    #[must_use]
    pub fn shown(&self) -> Shown {
        shown(&self.view, self.waiting.len())
    }

    /// The state of the node that decisions see at `now`.
    pub fn facts(&mut self, now: SimTime) -> &fpga_core::node_facts::NodeFacts {
        let (view, waiting) = (&self.view, self.waiting.len());
        self.collector.facts(now, || shown(view, waiting))
    }

    /// The state that the last call of [`Self::facts`] returned.
    #[must_use]
    pub fn known(&self) -> &fpga_core::node_facts::NodeFacts {
        self.collector.known()
    }

    fn advance(&mut self, now: SimTime) {
        self.busy_time = self.busy_time(now);
        self.busy_since = now;
    }
}

fn shown(view: &[Slot<u32>], waiting: usize) -> Shown {
    Shown {
        loaded: view.iter().filter_map(|slot| slot.resident).collect(),
        queued: u32::try_from(waiting).unwrap_or(u32::MAX),
    }
}

//! One node: its slots, who waits for them, and what it has done so far. Slots are the production table (S-7).

use super::collector::{Collector, Shown, digest, number};
use super::jobs::Job;
use crate::time::{Micros, SimTime};
use fpga_core::router::{Board, Slot, SlotState};
use fpga_core::slots::{Demand, OtherKernels, SessionId, SlotIndex, SlotTable};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// A node with a board.
#[derive(Debug)]
pub struct Node {
    /// The board's slots.
    slots: SlotTable,
    /// What the router sees of each slot, in order.
    pub view: Vec<Slot<u32>>,
    /// Who waits for a slot, the longest first.
    pub waiting: VecDeque<Job>,
    /// Its collector.
    pub collector: Collector,
    /// Time to load a bitstream, and more per megabyte of it.
    pub reconfiguration: (Micros, f64),
    /// Slots in use.
    pub busy: u32,
    /// Slot time used until `busy_until`.
    busy_time: Micros,
    busy_since: SimTime,
    /// What it did so far.
    pub done: Done,
    /// Processor time of requests that arrived so far.
    pub cpu: Micros,
}

/// What a node did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Requests that began on the board.
    pub started: u64,
    /// Of these the ones that had to load their bitstream.
    pub cold: u64,
    /// Time spent loading.
    pub reconfiguration: Micros,
    /// Time on the board that requests asked for, loading included.
    pub service: Micros,
}

/// How a request got its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The slot.
    pub slot: u32,
    /// What was in it before, if that is gone.
    pub evicted: Option<u32>,
    /// Whether its bitstream was there.
    pub resident: bool,
}

impl Node {
    /// An idle one with empty slots.
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

    /// What the router sees of it.
    #[must_use]
    pub fn board(&self) -> Board<'_, u32> {
        Board { slots: &self.view, waiting: self.waiting.len() }
    }

    /// Takes a slot for a bitstream as a device manager does; `worth` says what not to evict.
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

    /// Slot time used until now.
    #[must_use]
    pub fn busy_time(&self, now: SimTime) -> Micros {
        self.busy_time + Micros((now - self.busy_since).0 * u64::from(self.busy))
    }

    /// Whether the table and what the router sees of it agree.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.slots.in_use() == self.busy as usize
            && self
                .slots
                .resident()
                .zip(&self.view)
                .all(|(is, seen)| is.map(|digest| number(&digest)) == seen.resident)
    }

    /// What is published of slots and queue.
    #[must_use]
    pub fn shown(&self) -> Shown {
        shown(&self.view, self.waiting.len())
    }

    /// What decisions know of it.
    pub fn facts(&mut self, now: SimTime) -> &fpga_core::node_facts::NodeFacts {
        let (view, waiting) = (&self.view, self.waiting.len());
        self.collector.facts(now, || shown(view, waiting))
    }

    /// The same, as it was when it was last asked for.
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

//! The slots of one device (S-7): the bitstream in each slot, the session that holds it, and the slots that a task
//! takes.
//!
//! A task takes all its slots at once or none. For each bitstream the table chooses a slot that holds it, then an
//! empty slot, then the idle slot whose bitstream is worth least to the caller, then the one unused for the longest
//! time. A bitstream may be in several slots. The caller loads the bitstreams.

use fpga_core::bitstream::Digest;
use std::num::NonZeroU32;

/// Maximum number of tasks of a session that share a slot, unless they wait for each other. The next session waits for
/// all of them.
pub const MAX_TASKS_PER_SLOT: u32 = 64;

/// Index of a slot in a device, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

/// Id of a session, unique while the device manager runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The slots that a task needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand {
    /// No slot: the task has no kernels.
    Nothing,
    /// One slot of any content, which stays resident: the task's kernels come from no bitstream (programs from
    /// source).
    AnySlot,
    /// One slot for each of these bitstreams.
    Bitstreams(Bitstreams),
}

/// A non-empty set of bitstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstreams(Vec<Digest>);

/// The slots that a task takes, and the loads that must be done before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Slots of the task, one per bitstream in the order of the demand.
    pub slots: Vec<SlotIndex>,
    /// Bitstreams to load.
    pub load: Vec<SlotLoad>,
    /// Bitstreams that the loads evict.
    pub evicted: Vec<Digest>,
}

/// One reconfiguration of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotLoad {
    /// Slot to reconfigure.
    pub slot: SlotIndex,
    /// Bitstream to load.
    pub bitstream: Digest,
}

/// The slots of one device.
#[derive(Debug, Clone)]
pub struct SlotTable {
    slots: Vec<Slot>,
    /// Number of uses so far: a logical clock that orders last uses.
    uses: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    resident: Option<Digest>,
    /// Session that holds the slot, and the number of its tasks.
    holder: Option<Holder>,
    /// Value of `uses` when the slot was last taken or released; 0 if never.
    last_use: u64,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    session: SessionId,
    tasks: u32,
}

impl Demand {
    /// The demand of a task with kernels of these bitstreams and perhaps others.
    ///
    /// Kernels without a bitstream need no slot of their own beside kernels with one.
    #[must_use]
    pub fn of(bitstreams: impl IntoIterator<Item = Digest>, other_kernels: OtherKernels) -> Self {
        match (Bitstreams::new(bitstreams), other_kernels) {
            (Some(bitstreams), _) => Self::Bitstreams(bitstreams),
            (None, OtherKernels::Some) => Self::AnySlot,
            (None, OtherKernels::None) => Self::Nothing,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::AnySlot => 1,
            Self::Bitstreams(bitstreams) => bitstreams.0.len(),
        }
    }
}

/// Whether a task has kernels that come from no bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherKernels {
    /// The task has such kernels.
    Some,
    /// The task has no such kernels.
    None,
}

impl Bitstreams {
    /// The set of `bitstreams` in the order of their first occurrence; `None` if there are none.
    #[must_use]
    pub fn new(bitstreams: impl IntoIterator<Item = Digest>) -> Option<Self> {
        let mut set: Vec<Digest> = Vec::new();
        for bitstream in bitstreams {
            if !set.contains(&bitstream) {
                set.push(bitstream);
            }
        }
        (!set.is_empty()).then_some(Self(set))
    }

    /// The bitstreams in order, without repeats.
    #[must_use]
    pub fn as_slice(&self) -> &[Digest] {
        &self.0
    }
}

impl SlotTable {
    /// A table of `count` empty slots.
    #[must_use]
    pub fn new(count: NonZeroU32) -> Self {
        Self { slots: (0..count.get()).map(|_| Slot::default()).collect(), uses: 0 }
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Always false: a device has at least one slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bitstream in each slot, in order.
    pub fn resident(&self) -> impl Iterator<Item = Option<Digest>> + '_ {
        self.slots.iter().map(|slot| slot.resident)
    }

    /// The bitstream in `slot`.
    #[must_use]
    pub fn resident_in(&self, slot: SlotIndex) -> Option<Digest> {
        self.slots.get(position(slot)).and_then(|slot| slot.resident)
    }

    /// The session that holds `slot`.
    #[must_use]
    pub fn holder(&self, slot: SlotIndex) -> Option<SessionId> {
        self.slots.get(position(slot)).and_then(|slot| slot.holder).map(|holder| holder.session)
    }

    /// Number of slots that are held.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.iter().filter(|slot| slot.holder.is_some()).count()
    }

    /// Records that a bitstream is in an empty slot already, for a board that was loaded before the start. Returns the
    /// slot that holds the bitstream; `None` if no slot is empty. A resident bitstream stays where it is.
    pub fn preload(&mut self, bitstream: Digest) -> Option<SlotIndex> {
        if let Some(resident) = self.slots.iter().position(|slot| slot.resident == Some(bitstream)) {
            return Some(index(resident));
        }
        let empty = self.slots.iter().position(|slot| slot.resident.is_none() && slot.holder.is_none())?;
        if let Some(slot) = self.slots.get_mut(empty) {
            slot.resident = Some(bitstream);
        }
        Some(index(empty))
    }

    /// Takes idle slots for a task of `session`, all that the task needs or none.
    ///
    /// A bitstream that must be loaded counts as resident from now on. No other session can take the slot before its
    /// release.
    pub fn take(&mut self, session: SessionId, demand: &Demand) -> Option<Assignment> {
        self.take_keeping(session, demand, |_, _| 0_u8)
    }

    /// Like [`Self::take`], but evicts the bitstream with the least `worth` first; of equal ones the one unused for
    /// the longest time. `worth` gets the bitstream and the number of slots that hold it, idle or not.
    pub fn take_keeping<W: Ord>(
        &mut self,
        session: SessionId,
        demand: &Demand,
        worth: impl Fn(Digest, NonZeroU32) -> W,
    ) -> Option<Assignment> {
        let mut assignment = self.choose(demand, &worth)?;
        for load in &assignment.load {
            if let Some(slot) = self.slots.get_mut(position(load.slot)) {
                assignment.evicted.extend(slot.resident.replace(load.bitstream));
            }
        }
        self.hold(session, &assignment.slots);
        Some(assignment)
    }

    /// Marks `slot` as empty after a failed load.
    pub fn unload(&mut self, slot: SlotIndex) {
        if let Some(slot) = self.slots.get_mut(position(slot)) {
            slot.resident = None;
        }
    }

    /// Joins slots that other tasks of `session` hold, if they meet the whole demand and each is held by fewer than
    /// `most_tasks` tasks.
    pub fn join(&mut self, session: SessionId, demand: &Demand, most_tasks: u32) -> Option<Assignment> {
        let own = |slot: &Slot| {
            slot.holder.is_some_and(|holder| holder.session == session && holder.tasks < most_tasks)
        };
        let slots = match demand {
            Demand::Nothing => Vec::new(),
            Demand::AnySlot => vec![index(self.slots.iter().position(own)?)],
            Demand::Bitstreams(bitstreams) => bitstreams
                .0
                .iter()
                .map(|wanted| {
                    self.slots.iter().position(|slot| own(slot) && slot.resident == Some(*wanted)).map(index)
                })
                .collect::<Option<_>>()?,
        };
        self.hold(session, &slots);
        Some(Assignment { slots, ..Assignment::default() })
    }

    /// Ends one task's hold on `slots` and returns those that are idle now. The bitstreams stay resident.
    pub fn release(&mut self, slots: &[SlotIndex]) -> Vec<SlotIndex> {
        let mut idle = Vec::new();
        for &slot_index in slots {
            self.uses += 1;
            let Some(slot) = self.slots.get_mut(position(slot_index)) else { continue };
            let Some(holder) = &mut slot.holder else { continue };
            slot.last_use = self.uses;
            holder.tasks -= 1;
            if holder.tasks == 0 {
                slot.holder = None;
                idle.push(slot_index);
            }
        }
        idle
    }

    fn hold(&mut self, session: SessionId, slots: &[SlotIndex]) {
        for &slot_index in slots {
            self.uses += 1;
            if let Some(slot) = self.slots.get_mut(position(slot_index)) {
                slot.last_use = self.uses;
                slot.holder.get_or_insert(Holder { session, tasks: 0 }).tasks += 1;
            }
        }
    }

    fn choose<W: Ord>(
        &self,
        demand: &Demand,
        worth: &impl Fn(Digest, NonZeroU32) -> W,
    ) -> Option<Assignment> {
        match demand {
            Demand::Nothing => Some(Assignment::default()),
            Demand::AnySlot => {
                let slot = self.victim(&[], worth)?;
                Some(Assignment { slots: vec![slot], ..Assignment::default() })
            }
            Demand::Bitstreams(bitstreams) => self.choose_for(&bitstreams.0, worth),
        }
    }

    fn choose_for<W: Ord>(
        &self,
        bitstreams: &[Digest],
        worth: &impl Fn(Digest, NonZeroU32) -> W,
    ) -> Option<Assignment> {
        // Choose resident bitstreams first, so that no other bitstream of the same task evicts them.
        let mut chosen: Vec<Option<SlotIndex>> =
            bitstreams.iter().map(|bitstream| self.idle_with(*bitstream)).collect();
        let mut taken: Vec<SlotIndex> = chosen.iter().flatten().copied().collect();
        let mut load = Vec::new();
        for (choice, &bitstream) in chosen.iter_mut().zip(bitstreams) {
            if choice.is_none() {
                let slot = self.victim(&taken, worth)?;
                taken.push(slot);
                load.push(SlotLoad { slot, bitstream });
                *choice = Some(slot);
            }
        }
        Some(Assignment { slots: chosen.into_iter().flatten().collect(), load, evicted: Vec::new() })
    }

    fn idle_with(&self, bitstream: Digest) -> Option<SlotIndex> {
        let found = |slot: &Slot| slot.holder.is_none() && slot.resident == Some(bitstream);
        self.slots.iter().position(found).map(index)
    }

    /// Number of slots that hold a bitstream.
    fn copies(&self, of: Digest) -> NonZeroU32 {
        let copies = self.slots.iter().filter(|slot| slot.resident == Some(of)).count();
        u32::try_from(copies).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    /// The slot to load into next: an empty one, else the idle one whose bitstream is worth least, of equal ones the
    /// one unused for the longest time.
    fn victim<W: Ord>(
        &self,
        taken: &[SlotIndex],
        worth: &impl Fn(Digest, NonZeroU32) -> W,
    ) -> Option<SlotIndex> {
        let worth = |resident| worth(resident, self.copies(resident));
        self.slots
            .iter()
            .enumerate()
            .map(|(position, slot)| (index(position), slot))
            .filter(|(slot_index, slot)| slot.holder.is_none() && !taken.contains(slot_index))
            .min_by_key(|(_, slot)| (slot.resident.map(worth), slot.last_use))
            .map(|(slot_index, _)| slot_index)
    }
}

fn position(slot: SlotIndex) -> usize {
    slot.0 as usize
}

fn index(position: usize) -> SlotIndex {
    // The number of slots is a u32, so a position always fits.
    SlotIndex(u32::try_from(position).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;

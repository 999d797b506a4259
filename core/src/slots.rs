//! The slots of one device (S-7): which bitstream each holds, who uses it, and which are taken for a task.
//!
//! A task takes all its slots at once or none. A resident bitstream wins, then an empty slot, then the idle slot whose
//! bitstream is worth least to the caller, then the one whose last use is longest ago. A bitstream may be in several slots:
//! the caller is told in how many. Loading itself, and its time, are the caller's.

use crate::bitstream::Digest;
use std::num::NonZeroU32;

/// Most tasks of a session that share a slot, unless they wait for each other: who waits for the slot waits for all of them.
pub const MAX_TASKS_PER_SLOT: u32 = 64;

/// Index of a slot in its device, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

/// One session of a device manager, unique while the manager lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What a task needs of the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand {
    /// No kernels: no slot.
    Nothing,
    /// Kernels, but none from a bitstream (programs from source): any one slot, whatever it holds stays resident.
    AnySlot,
    /// Kernels of these bitstreams: one slot for each.
    Bitstreams(Bitstreams),
}

/// A set of bitstreams, not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstreams(Vec<Digest>);

/// Which slots a task takes, and what has to be loaded into some of them before it starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The slots, one per bitstream in the order of the demand.
    pub slots: Vec<SlotIndex>,
    /// What is not resident yet.
    pub load: Vec<Load>,
    /// What is resident no more.
    pub evicted: Vec<Digest>,
}

/// One reconfiguration: the bitstream that goes into the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Where to.
    pub slot: SlotIndex,
    /// What.
    pub bitstream: Digest,
}

/// The slots of one device.
#[derive(Debug, Clone)]
pub struct SlotTable {
    slots: Vec<Slot>,
    /// Counts uses: the order of last uses, without a clock.
    uses: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    resident: Option<Digest>,
    /// The session that holds it, and by how many of its tasks.
    holder: Option<Holder>,
    /// Value of `uses` when it was taken or released last; 0 if never.
    last_use: u64,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    session: SessionId,
    tasks: u32,
}

impl Demand {
    /// The demand of a task that has kernels of these bitstreams, and others where `other_kernels` is set.
    ///
    /// Kernels without a bitstream ride in the slots of the others.
    #[must_use]
    pub fn of(bitstreams: impl IntoIterator<Item = Digest>, other_kernels: OtherKernels) -> Self {
        match (Bitstreams::new(bitstreams), other_kernels) {
            (Some(bitstreams), _) => Self::Bitstreams(bitstreams),
            (None, OtherKernels::Some) => Self::AnySlot,
            (None, OtherKernels::None) => Self::Nothing,
        }
    }

    /// How many slots it takes.
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
    /// It has.
    Some,
    /// It hasn't.
    None,
}

impl Bitstreams {
    /// The set of these, in the order of first mention; nothing if there are none.
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

    /// Them.
    #[must_use]
    pub fn as_slice(&self) -> &[Digest] {
        &self.0
    }
}

impl SlotTable {
    /// `count` empty slots.
    #[must_use]
    pub fn new(count: NonZeroU32) -> Self {
        Self { slots: (0..count.get()).map(|_| Slot::default()).collect(), uses: 0 }
    }

    /// How many slots there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never: a device has a slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// What each slot holds, in order.
    pub fn resident(&self) -> impl Iterator<Item = Option<Digest>> + '_ {
        self.slots.iter().map(|slot| slot.resident)
    }

    /// What one slot holds.
    #[must_use]
    pub fn resident_in(&self, slot: SlotIndex) -> Option<Digest> {
        self.slots.get(position(slot)).and_then(|slot| slot.resident)
    }

    /// The session that holds a slot.
    #[must_use]
    pub fn holder(&self, slot: SlotIndex) -> Option<SessionId> {
        self.slots.get(position(slot)).and_then(|slot| slot.holder).map(|holder| holder.session)
    }

    /// How many slots are held.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.iter().filter(|slot| slot.holder.is_some()).count()
    }

    /// A bitstream is in an empty slot from the start, as on a board that was loaded before. Returns which slot; nothing
    /// where all hold something. One that is resident stays where it is.
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

    /// Takes idle slots for a task of `session`: all that it needs, or none.
    ///
    /// What must be loaded counts as resident from now on; nobody else can take the slot before it is released.
    pub fn take(&mut self, session: SessionId, demand: &Demand) -> Option<Assignment> {
        self.take_keeping(session, demand, |_, _| 0_u8)
    }

    /// The same, where not the last use alone decides what is evicted: the bitstream that is worth least goes first, of
    /// equal ones that of longest ago. `worth` is told in how many slots of the device the bitstream is, used ones too.
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

    /// A slot holds nothing, whatever it held: loading it has failed.
    pub fn unload(&mut self, slot: SlotIndex) {
        if let Some(slot) = self.slots.get_mut(position(slot)) {
            slot.resident = None;
        }
    }

    /// Joins slots that other tasks of the same session hold, if they are all that a task needs and fewer than
    /// `most_tasks` hold each of them.
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

    /// Ends one task's hold on slots. The bitstreams stay resident. Returns those that nobody holds any more.
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
        // All resident ones first: no other bitstream of the same task may evict them.
        let mut chosen: Vec<Option<SlotIndex>> =
            bitstreams.iter().map(|bitstream| self.idle_with(*bitstream)).collect();
        let mut taken: Vec<SlotIndex> = chosen.iter().flatten().copied().collect();
        let mut load = Vec::new();
        for (choice, &bitstream) in chosen.iter_mut().zip(bitstreams) {
            if choice.is_none() {
                let slot = self.victim(&taken, worth)?;
                taken.push(slot);
                load.push(Load { slot, bitstream });
                *choice = Some(slot);
            }
        }
        Some(Assignment { slots: chosen.into_iter().flatten().collect(), load, evicted: Vec::new() })
    }

    fn idle_with(&self, bitstream: Digest) -> Option<SlotIndex> {
        let found = |slot: &Slot| slot.holder.is_none() && slot.resident == Some(bitstream);
        self.slots.iter().position(found).map(index)
    }

    /// In how many slots a bitstream is.
    fn copies(&self, of: Digest) -> NonZeroU32 {
        let copies = self.slots.iter().filter(|slot| slot.resident == Some(of)).count();
        u32::try_from(copies).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    /// The slot to load into next: an empty one, else the idle one that is worth least, else whose last use is longest
    /// ago.
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
    // A table is made from a u32, so that a position always fits.
    SlotIndex(u32::try_from(position).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;

//! The lent slots of all boards as one pool: which waiting job gets a slot that becomes free (P-4), for many tenants.
//!
//! [`state`] has the pool and decides by a [`policy`], [`tenants`] says what each namespace may have and whose turn it
//! is, and [`thresholds`] sorts jobs into priority queues. [`model`] computes which thresholds suit a distribution of
//! job sizes ([`sizes`], P-5). The module does not run jobs and does not move their data.

mod bundles;
mod homebound;
mod jobs;
pub mod model;
pub mod policy;
mod queue;
#[cfg(test)]
mod reference;
pub mod sizes;
mod slots;
pub mod state;
pub mod tenants;
pub mod thresholds;

use std::time::Duration;

/// Id of a job, unique while the pool lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Number of a node, given by the caller. A node may have slots, be the home of jobs, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

/// Number of a slot of a node, counted over all boards of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotNumber(pub u32);

/// Number of a tenant (a namespace), given by the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// Number of an accelerator of the library, given by the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcceleratorId(pub u32);

/// Number of bytes that a job processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Number of a slot class: slots of one kind of board and one region, in which the same bitstreams run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotClass(u8);

/// The slot classes in which a job can run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassSet(u64);

impl SlotClass {
    /// Maximum number of slot classes.
    pub const COUNT: u8 = 64;

    /// The class with this number; `None` from [`Self::COUNT`] on.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number))
    }
}

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self(u64::MAX);

    /// No class.
    pub const NONE: Self = Self(0);

    /// The classes of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The classes of this set that the other one does not have.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set has this class.
    #[must_use]
    pub fn contains(self, class: SlotClass) -> bool {
        self.0 & (1 << class.0) != 0
    }
}

impl FromIterator<SlotClass> for ClassSet {
    fn from_iter<I: IntoIterator<Item = SlotClass>>(classes: I) -> Self {
        Self(classes.into_iter().fold(0, |set, class| set | (1 << class.0)))
    }
}

/// A job that needs a slot (P-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Id of the job.
    pub id: JobId,
    /// Tenant that the job counts for.
    pub tenant: TenantId,
    /// Home of the job: the node that has its data.
    pub home: NodeIndex,
    /// Size of the data.
    pub size: Bytes,
    /// Accelerator that the job uses.
    pub accelerator: AcceleratorId,
    /// Slot classes for which the accelerator has a bitstream.
    pub classes: ClassSet,
}

impl Job {
    /// A job of the only tenant, with the only accelerator, which runs in every slot.
    #[must_use]
    pub fn of_one_tenant(id: JobId, home: NodeIndex, size: Bytes) -> Self {
        let (tenant, accelerator) = (TenantId::default(), AcceleratorId::default());
        Self { id, tenant, home, size, accelerator, classes: ClassSet::ALL }
    }
}

/// Whether the home of a job has slots that the job can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The home has such slots.
    Pooled,
    /// The home has no such slot: every slot is remote for the job.
    Bare,
}

/// Whether a job runs at its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// At home: the data crosses no network.
    Local,
    /// On another node.
    Remote,
}

/// A job that may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The job.
    pub job: JobId,
    /// Node of the slot.
    pub node: NodeIndex,
    /// Slot that the job gets.
    pub slot: SlotNumber,
    /// Whether the node is the job's home.
    pub place: Place,
}

/// Slots of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// All slots.
    pub slots: u32,
    /// Slots that jobs hold.
    pub jobs: u32,
    /// Slots that groups hold.
    pub groups: u32,
}

/// A job's position in time: a recalled job keeps the one of its first arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival {
    /// Time of the arrival, on the caller's monotonic clock.
    pub at: Duration,
    /// Number of the arrival, for jobs that arrive at the same time.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_classes_that_it_was_made_of() {
        let class = |number| SlotClass::new(number).unwrap();
        let set: ClassSet = [class(0), class(63)].into_iter().collect();
        assert_eq!([0, 1, 62, 63].map(|number| set.contains(class(number))), [true, false, false, true]);
        assert_eq!(SlotClass::new(64), None);
        assert!((0..64).all(|number| ClassSet::ALL.contains(class(number))));
        let one: ClassSet = [class(63)].into_iter().collect();
        assert_eq!((set.without(one).and(one), one.without(set)), (set, ClassSet::NONE));
    }
}

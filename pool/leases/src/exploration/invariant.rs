//! The invariants of the protocol by name, and how one is broken.

use std::fmt;

/// An invariant of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// A slot has at most one lease, and only that lease's tasks run.
    OneLease,
    /// In a free slot no task and no load runs.
    FreeIsIdle,
    /// A step's output is delivered at most once.
    AtMostOnce,
    /// A job whose client lives gets all its outputs.
    OnceAtLast,
    /// The slot of a dead client is free or bad within 35 s.
    DeadClientsLoseSlots,
    /// A job's first arrival does not change.
    ArrivalStays,
    /// A recalled slot is free at most a step and 31 s later.
    RecallsEnd,
    /// A lease that has ended is not reserved again.
    OneLife,
    /// A slot that a broker counts as free is free, unless a message to that broker is under way (rule 3).
    BrokersCountRight,
    /// A lease that is offered is loaded (rule 4).
    OffersAreLoaded,
    /// The terms that a manager accepts do not decrease (rule 7).
    TermsGrow,
    /// The jobs of a bundle are offered their leases at the same time (rule 4).
    BundlesAreWhole,
    /// A job that wants a slot for bytes says those whose outputs are not there.
    WantsSayTheRest,
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// How the state breaks the invariant.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

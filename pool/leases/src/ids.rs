//! Names of the protocol's parties and objects.

use std::fmt;

/// Id of a lease: 128 random bits. Whoever knows the id may use the lease, so that the id is a secret between the
/// manager, the broker, and the job's client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// Id of a job, chosen by the job's client: 128 random bits. A job keeps its id over all its leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobUuid(pub u128);

/// Id of a group of jobs, chosen by the group's client: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupUuid(pub u128);

/// Id of a bundle of jobs, chosen by the bundle's client: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleUuid(pub u128);

/// Id of one life of a manager's process, different from the ids of its former lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

/// A manager as the broker's owner numbers managers by the identities that they prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerId(pub u64);

/// Id of a connection, unique while the process lives that numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Number of a broker's time in office. A later active broker has a higher term.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Number of a step of a job: a chunk or an action. A step keeps its number when it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepNumber(pub u64);

/// Number of a connection to a broker among those that a job's client has made, from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

impl Attempt {
    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Term {
    /// The term after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Debug for LeaseId {
    /// Writes 32 of the 128 bits: enough to tell leases apart in a log, too few to use one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{:x}", self.0 & 0xffff_ffff)
    }
}

impl fmt::Debug for JobUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "J{:x}", self.0)
    }
}

impl fmt::Debug for GroupUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G{:x}", self.0)
    }
}

impl fmt::Debug for BundleUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "B{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_does_not_give_a_lease_away() {
        let text = format!("{:?}", LeaseId(0x0123_4567_89ab_cdef_0011_2233_4455_6677));
        assert_eq!(text, "L44556677");
    }
}

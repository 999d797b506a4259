//! Election of the replica that works: the holder of a Kubernetes Lease. This module decides, without I/O; `race` asks the
//! API server.
//!
//! A Lease counts as abandoned when it has not changed for its duration on the reader's own clock, so that the clocks of
//! replicas need not agree.

mod fencing;
mod race;

pub use fencing::{FENCING_TOKEN, Fencing, FencingError};
pub use race::{Election, Leadership, Timing};
use std::time::Duration;

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Identity of the holder; empty if nobody holds it.
    pub holder: String,
    /// Time that the holder has to renew it.
    pub duration: Duration,
    /// The date of the last renewal as it is written, which is compared with nothing but another such date.
    pub renewed: String,
}

/// A Lease and the moment since which it has not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLease {
    /// What it says.
    pub facts: LeaseFacts,
    /// When it was first seen to say so, since the start of the reader.
    pub since: Duration,
}

/// What a replica does about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStep {
    /// Write the own identity into it, since nobody holds it any more.
    Take,
    /// Renew it.
    Renew,
    /// Leave it to its holder.
    Wait,
}

impl ObservedLease {
    /// The Lease as it is read at the moment `now`, `before` being what was observed last.
    #[must_use]
    pub fn read(facts: LeaseFacts, before: Option<Self>, now: Duration) -> Self {
        match before {
            Some(before) if before.facts == facts => before,
            _ => Self { facts, since: now },
        }
    }
}

/// What the replica `me` does about a Lease at the moment `now`.
#[must_use]
pub fn decide(lease: &ObservedLease, me: &str, now: Duration) -> LeaseStep {
    let is_abandoned = now.saturating_sub(lease.since) >= lease.facts.duration;
    match lease.facts.holder.as_str() {
        holder if holder == me => LeaseStep::Renew,
        "" => LeaseStep::Take,
        _ if is_abandoned => LeaseStep::Take,
        _ => LeaseStep::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(holder: &str, renewed: &str) -> LeaseFacts {
        LeaseFacts { holder: holder.into(), duration: Duration::from_secs(15), renewed: renewed.into() }
    }

    #[test]
    fn a_lease_is_taken_when_nobody_renews_it_any_more() {
        let seen = ObservedLease::read(facts("other", "1"), None, Duration::from_millis(1_000));
        assert_eq!(decide(&seen, "me", Duration::from_millis(15_999)), LeaseStep::Wait);
        assert_eq!(decide(&seen, "me", Duration::from_millis(16_000)), LeaseStep::Take);
        let again =
            ObservedLease::read(facts("other", "1"), Some(seen.clone()), Duration::from_millis(9_000));
        assert_eq!(
            decide(&again, "me", Duration::from_millis(16_000)),
            LeaseStep::Take,
            "it has not changed"
        );
        let renewed = ObservedLease::read(facts("other", "2"), Some(seen), Duration::from_millis(9_000));
        assert_eq!(decide(&renewed, "me", Duration::from_millis(16_000)), LeaseStep::Wait);
    }

    #[test]
    fn the_holder_renews_it_and_a_lease_that_was_given_back_is_taken_at_once() {
        let now = Duration::from_millis(90_000);
        let seen = |holder: &str| ObservedLease::read(facts(holder, "1"), None, now);
        assert_eq!(decide(&seen("me"), "me", now), LeaseStep::Renew);
        assert_eq!(decide(&seen(""), "me", now), LeaseStep::Take);
    }
}

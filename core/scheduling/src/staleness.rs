//! The age of a node's state on a trusted clock, and the policies for states that are too old.
//!
//! The collector's own clock (`measured_at`) does not count: the receiver records the time of the receipt and the age
//! of the state at that time.

use crate::node_state::NodeState;
use crate::score::PerSignal;
use crate::signals::Signals;
use crate::units::{Millis, MonotonicTime};
use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::BuildHasher as _;
use std::ops::Deref;
use std::str::FromStr;

/// A state with the time of its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    brief: Brief,
    state: NodeState,
}

/// All that most decisions read of a received state: its age and its signals. Copies are cheap, so that those of many
/// nodes can lie together in memory. What filter reads lies in the first 64 bytes, which the processor loads together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Brief {
    at: MonotonicTime,
    age_then: Millis,
    fingerprint: u64,
    signals: Signals,
}

/// The knowledge of a node's boards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// The node never published a state.
    #[default]
    Absent,
    /// The last published state could not be decoded.
    Unreadable,
    /// The last published state.
    Known(Box<Received>),
}

/// Whether a node may be ranked by its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// The state is at most three of its heartbeats old.
    Fresh,
    /// The state is older than three of its heartbeats.
    Stale,
    /// There is no state.
    Absent,
    /// The last published state could not be decoded.
    Unreadable,
}

impl Freshness {
    /// The name in answers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Absent => "absent",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The value of a signal of a node without fresh state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StalePolicy {
    /// The signal is 0.5.
    Neutral,
    /// The signal is 0.
    #[default]
    Penalise,
    /// The filter rejects the node.
    Exclude,
}

/// The policy of each signal.
pub type StalePolicies = PerSignal<StalePolicy>;

/// The text is not a [`StalePolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy for stale nodes; write `neutral`, `penalise` or `exclude`")]
pub struct InvalidStalePolicy(String);

impl Received {
    /// A state that was received `at` a moment of the receiver's clock, `age_then` old. The age is zero unless this is
    /// the first state of the node; then it follows from the API server's timestamp.
    #[must_use]
    pub fn new(state: NodeState, at: MonotonicTime, age_then: Millis) -> Self {
        let signals = Signals::of(&state);
        let fingerprint = FixedState::default().hash_one((signals.fingerprint(), at, age_then));
        Self { brief: Brief { at, age_then, signals, fingerprint }, state }
    }

    /// The received state.
    #[must_use]
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// Age and signals of the state, which suffice for most decisions.
    #[must_use]
    pub fn brief(&self) -> &Brief {
        &self.brief
    }
}

impl Deref for Received {
    type Target = Brief;

    fn deref(&self) -> &Brief {
        &self.brief
    }
}

impl Brief {
    /// Time of the receipt, on the receiver's clock.
    #[must_use]
    pub fn received_at(&self) -> MonotonicTime {
        self.at
    }

    /// Age of the state at its receipt.
    #[must_use]
    pub fn age_at_receipt(&self) -> Millis {
        self.age_then
    }

    /// The signals of the state.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// A hash that differs if usage, slots by kind, bitstreams, or the times of the receipt differ.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The age of the state at `now`.
    #[must_use]
    pub fn age(&self, now: MonotonicTime) -> Millis {
        self.age_then + (now - self.at)
    }

    /// Whether the state is older than its heartbeats allow.
    #[must_use]
    pub fn is_stale(&self, now: MonotonicTime) -> bool {
        self.age(now) > self.signals.stale_after()
    }
}

impl Knowledge {
    /// The state, fresh or not.
    #[must_use]
    pub fn state(&self) -> Option<&NodeState> {
        self.received().map(Received::state)
    }

    /// The state with the time of its receipt, fresh or not.
    #[must_use]
    pub fn received(&self) -> Option<&Received> {
        match self {
            Self::Known(received) => Some(received),
            Self::Absent | Self::Unreadable => None,
        }
    }

    /// The state, if it is fresh.
    #[must_use]
    pub fn fresh(&self, now: MonotonicTime) -> Option<&Received> {
        match self {
            Self::Known(received) if !received.is_stale(now) => Some(received),
            _ => None,
        }
    }

    /// Whether `state` arrives too late: the known state is at least as new, by (boot, seq), and still fresh. A stale
    /// state outdates nothing, so a collector that lost its count is accepted again after three heartbeats.
    ///
    /// Both states must belong to the same Node UID; the caller checks that.
    #[must_use]
    pub fn outdates(&self, state: &NodeState, now: MonotonicTime) -> bool {
        self.fresh(now).is_some_and(|received| received.state().version() >= state.version())
    }

    /// Whether the knowledge is fresh at `now`.
    #[must_use]
    pub fn freshness(&self, now: MonotonicTime) -> Freshness {
        match self {
            Self::Absent => Freshness::Absent,
            Self::Unreadable => Freshness::Unreadable,
            Self::Known(received) if received.is_stale(now) => Freshness::Stale,
            Self::Known(_) => Freshness::Fresh,
        }
    }
}

impl StalePolicies {
    /// Whether the filter rejects nodes without fresh state.
    #[must_use]
    pub fn exclude(&self) -> bool {
        self.into_array().contains(&StalePolicy::Exclude)
    }
}

impl FromStr for StalePolicy {
    type Err = InvalidStalePolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "neutral" => Ok(Self::Neutral),
            "penalise" => Ok(Self::Penalise),
            "exclude" => Ok(Self::Exclude),
            _ => Err(InvalidStalePolicy(text.to_owned())),
        }
    }
}

impl fmt::Display for StalePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Neutral => "neutral",
            Self::Penalise => "penalise",
            Self::Exclude => "exclude",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::mk_state;
    use proptest::prelude::*;

    fn received(at: u64, age_then: u64) -> Received {
        Received::new(mk_state(), MonotonicTime(at), Millis(age_then))
    }

    #[test]
    fn age_is_counted_from_receipt_on_the_receivers_clock() {
        assert_eq!(received(1_000, 0).age(MonotonicTime(4_000)), Millis(3_000));
        assert_eq!(received(1_000, 500).age(MonotonicTime(4_000)), Millis(3_500));
        assert_eq!(
            received(1_000, 500).age(MonotonicTime(0)),
            Millis(500),
            "a clock that went back makes nothing younger"
        );
    }

    #[test]
    fn a_state_is_stale_after_three_of_the_heartbeats_that_it_declares() {
        let known = Knowledge::Known(Box::new(received(0, 0)));
        let limit = 3 * mk_state().heartbeat.0;
        assert_eq!(known.freshness(MonotonicTime(limit)), Freshness::Fresh);
        assert_eq!(known.freshness(MonotonicTime(limit + 1)), Freshness::Stale);
        assert_eq!(known.fresh(MonotonicTime(limit + 1)), None);
    }

    fn version(boot: u64, seq: u64) -> NodeState {
        NodeState { boot, seq, ..mk_state() }
    }

    /// The knowledge after `state` arrived at `now`.
    fn take(known: Knowledge, state: NodeState, now: u64) -> Knowledge {
        if known.outdates(&state, MonotonicTime(now)) {
            return known;
        }
        Knowledge::Known(Box::new(Received::new(state, MonotonicTime(now), Millis::ZERO)))
    }

    #[test]
    fn a_collector_that_lost_its_count_is_accepted_again_when_its_last_state_is_stale() {
        let limit = 3 * mk_state().heartbeat.0;
        let known = take(Knowledge::Absent, version(5, 9), 0);
        assert!(known.outdates(&version(1, 1), MonotonicTime(limit)));
        assert!(!known.outdates(&version(1, 1), MonotonicTime(limit + 1)));
        assert!(!Knowledge::Unreadable.outdates(&version(0, 0), MonotonicTime::START));
    }

    proptest! {
        // The stream and the annotation carry the same states. Each may delay, repeat and reorder them, and collectors
        // restart.
        #[test]
        fn the_newest_state_wins_in_any_order_and_a_repeated_state_is_no_younger(
            deliveries in prop::collection::vec((1_u64..4, 1_u64..20), 1..60),
        ) {
            let mut known = Knowledge::Absent;
            let mut newest: Option<((u64, u64), u64)> = None;
            for (now, (boot, seq)) in (0_u64..).zip(deliveries) {
                known = take(known, version(boot, seq), now);
                if newest.is_none_or(|(version, _)| version < (boot, seq)) {
                    newest = Some(((boot, seq), now));
                }
                let Knowledge::Known(received) = &known else { unreachable!() };
                let (newest, first_seen) = newest.unwrap();
                prop_assert_eq!((received.state().boot, received.state().seq), newest);
                prop_assert_eq!(received.age(MonotonicTime(now)), Millis(now - first_seen));
            }
        }
    }

    #[test]
    fn policies_survive_a_round_trip_through_text() {
        for text in ["neutral", "penalise", "exclude"] {
            assert_eq!(text.parse::<StalePolicy>().unwrap().to_string(), text);
        }
        assert!("ignore".parse::<StalePolicy>().unwrap_err().to_string().contains("write `neutral`"));
    }
}

//! How old a node's state is, by clocks that can be trusted, and what a signal is worth when it is too old.
//!
//! The author's own clock (`measured_at`) plays no part: whoever receives a state says when, and how old it was then.

use crate::node_state::NodeState;
use crate::score::PerSignal;
use crate::signals::Signals;
use crate::units::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A state and when it came in. What decisions read lies at its start, in whole lines of the processor's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Received {
    at: MonotonicTime,
    age_then: Millis,
    signals: Signals,
    state: NodeState,
}

/// What is known of a node's boards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// It never said anything.
    #[default]
    Absent,
    /// What it said can't be read.
    Unreadable,
    /// Its last word.
    Known(Box<Received>),
}

/// Whether what is known of a node may be ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Freshness {
    /// Its state is younger than three of its heartbeats.
    Fresh,
    /// It missed its heartbeats.
    Stale,
    /// There is no state.
    Absent,
    /// There is one that can't be read.
    Unreadable,
}

/// What a signal of a node without fresh state is worth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StalePolicy {
    /// One half.
    Neutral,
    /// Nothing.
    #[default]
    Penalise,
    /// The node is filtered out.
    Exclude,
}

/// The policy per signal.
pub type StalePolicies = PerSignal<StalePolicy>;

/// A text that is no [`StalePolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy for stale nodes; write `neutral`, `penalise` or `exclude`")]
pub struct InvalidStalePolicy(String);

impl Received {
    /// `state` as it came in `at` that moment of the receiver's clock, `age_then` old: zero, but at first sight what
    /// the API server's date says.
    #[must_use]
    pub fn new(state: NodeState, at: MonotonicTime, age_then: Millis) -> Self {
        let signals = Signals::of(&state);
        Self { at, age_then, signals, state }
    }

    /// When it came in, on the receiver's clock.
    #[must_use]
    pub fn received_at(&self) -> MonotonicTime {
        self.at
    }

    /// How old it was then.
    #[must_use]
    pub fn age_at_receipt(&self) -> Millis {
        self.age_then
    }

    /// What was received.
    #[must_use]
    pub fn state(&self) -> &NodeState {
        &self.state
    }

    /// What decisions need of it.
    #[must_use]
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// How old it is.
    #[must_use]
    pub fn age(&self, now: MonotonicTime) -> Millis {
        self.age_then + (now - self.at)
    }

    /// Whether it missed its heartbeats.
    #[must_use]
    pub fn is_stale(&self, now: MonotonicTime) -> bool {
        self.age(now) > self.signals.stale_after()
    }
}

impl Knowledge {
    /// The state, if it is fresh.
    #[must_use]
    pub fn fresh(&self, now: MonotonicTime) -> Option<&Received> {
        match self {
            Self::Known(received) if !received.is_stale(now) => Some(received),
            _ => None,
        }
    }

    /// Whether it is at least as new as `state`, by (boot, seq), and still fresh: then `state` comes too late. What has
    /// gone stale outdates nothing: an author that lost count is believed again after three heartbeats.
    ///
    /// Both must be of the same node object; whoever keeps states by name compares UIDs first.
    #[must_use]
    pub fn outdates(&self, state: &NodeState, now: MonotonicTime) -> bool {
        self.fresh(now).is_some_and(|received| received.state().version() >= state.version())
    }

    /// What can be made of it now.
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
    /// Whether a node without fresh state is filtered out.
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

    /// What is known after `state` came in at `now`.
    fn take(known: Knowledge, state: NodeState, now: u64) -> Knowledge {
        if known.outdates(&state, MonotonicTime(now)) {
            return known;
        }
        Knowledge::Known(Box::new(Received::new(state, MonotonicTime(now), Millis::ZERO)))
    }

    #[test]
    fn an_author_that_lost_count_is_believed_again_when_its_last_word_is_stale() {
        let limit = 3 * mk_state().heartbeat.0;
        let known = take(Knowledge::Absent, version(5, 9), 0);
        assert!(known.outdates(&version(1, 1), MonotonicTime(limit)));
        assert!(!known.outdates(&version(1, 1), MonotonicTime(limit + 1)));
        assert!(!Knowledge::Unreadable.outdates(&version(0, 0), MonotonicTime::START));
    }

    proptest! {
        // Two ways carry the same states; each may delay, repeat and reorder them, and collectors start anew.
        #[test]
        fn in_whatever_order_states_come_the_newest_is_known_and_repeats_make_nothing_younger(
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

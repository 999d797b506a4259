//! Whose turn it is on a board that is reconfigured as a whole.

use crate::bitstream::{BitstreamId, Digest};
use crate::node_state::{DeviceState, NodeState};
use crate::units::{Millis, MonotonicTime};

/// Time for which an allowed request comes first: the manager fetches the bytes in it, and begins to load them. From
/// then on the load counts as work of the session.
const LOADING_TIME: Millis = Millis::from_secs(5);
/// Time for which a request that waits keeps its turn after it was asked for the last time. Managers ask again about every
/// quarter of a second.
const WAITING_TIME: Millis = Millis::from_secs(3);
/// Longest time for which a request comes first while others are moved.
const LONGEST_MOVING_TIME: Millis = Millis::from_secs(300);

/// A request that comes first on a board that is reconfigured as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The pod that asked, and the bitstream that it wants.
    pub first: Claim,
    /// What the board is reserved for.
    pub stage: Stage,
    /// The moment of the first request.
    pub since: MonotonicTime,
    /// The moment from which other requests are heard again.
    pub until: MonotonicTime,
    /// The request that comes next, and the moment to which it keeps its turn.
    pub next: Option<(Claim, MonotonicTime)>,
}

/// A pod that wants to have a board reconfigured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// UID of the pod.
    pub uid: String,
    /// Namespace and name of the pod.
    pub pod: String,
    /// The bitstream that it wants.
    pub bitstream: Digest,
}

/// What a board is reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Other pods are to be moved off the board.
    Moving,
    /// The bitstream is to be loaded.
    Loading,
    /// It is the pod's turn, and it has yet to ask again.
    Asking,
}

impl Claim {
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        self.uid != other.uid && self.bitstream != other.bitstream
    }
}

impl Reservation {
    /// The reservation for a request, which may have come first before.
    pub(super) fn of(first: Claim, stage: Stage, before: Option<&Self>, now: MonotonicTime) -> Self {
        let before = before.filter(|before| before.first.uid == first.uid);
        let since = before.filter(|before| before.stage == stage).map_or(now, |before| before.since);
        let until = match stage {
            // Asking again gives no more time.
            Stage::Loading => since + LOADING_TIME,
            Stage::Moving => (now + WAITING_TIME).min(since + LONGEST_MOVING_TIME),
            Stage::Asking => now + WAITING_TIME,
        };
        Self { first, stage, since, until, next: before.and_then(|before| before.next.clone()) }
    }

    /// Another request waits: it comes next, if no other does.
    pub(super) fn is_waited_for(&mut self, claim: Claim, now: MonotonicTime) {
        if self.next.as_ref().is_none_or(|(next, _)| next.uid == claim.uid) {
            self.next = Some((claim, now + WAITING_TIME));
        }
    }

    /// What counts of the reservation at a moment: the next request comes first when the time of the first is over.
    pub(super) fn at(&self, now: MonotonicTime) -> Option<Self> {
        let next = self.next.clone().filter(|(_, until)| now < *until);
        if now < self.until { Some(Self { next, ..self.clone() }) } else { Self::for_next(next, now) }
    }

    /// The reservation after the board has what it was reserved for.
    pub(super) fn unless_loaded(
        self,
        state: &NodeState,
        device: &DeviceState,
        now: MonotonicTime,
    ) -> Option<Self> {
        let bitstream = BitstreamId::Digest(self.first.bitstream);
        let is_loaded = self.stage == Stage::Loading && state.holds(device, &bitstream).is_yes();
        if is_loaded { Self::for_next(self.next, now) } else { Some(self) }
    }

    /// The turn of the next request, until it asks again.
    fn for_next(next: Option<(Claim, MonotonicTime)>, now: MonotonicTime) -> Option<Self> {
        let (first, until) = next?;
        Some(Self { first, stage: Stage::Asking, since: now, until, next: None })
    }
}

//! What pods that were placed a moment ago will add to a node's load before any measurement shows it (anti-herd).
//!
//! `load = measured + Σ e × max(0, 1 − elapsed / window)` over the pods seen bound on the node, `elapsed` since they were.
//! `e` is what a pod is expected to use in a window: the mean of its owner's pods, else that of the cluster's, else the
//! least that costs one rank ([`loads`]). Between a decision and its binding, a hint is split over the best nodes; it counts
//! only while the pod is known to wait for a node ([`ExpectedLoads::waits`]), so that requests about pods that nobody
//! created add nothing to any node.
//!
//! **`e` ends early when the measurement shows the pod's own tasks.** A node's state does not say whose its usage is, so
//! a pod's own is: of what the state measured since the pod was bound, an equal share among the node's pods; nothing
//! while none of the bitstreams that it names was used since. What is so shown is taken off `e`, and no more is expected
//! once it has reached `e`.
//!
//! Everything is said of the boards of one kind, those that the pod which is decided on asks for: what a pod does falls on
//! the boards that suit it, in proportion to their slots.
//!
//! Nothing here is truth: who forgets it all decides a little worse for one window.

mod claims;
mod means;
mod piece;
mod rank_cost;
mod spots;
#[cfg(test)]
mod tests;
mod unconfirmed;

pub use means::Learnt;
pub use rank_cost::{ExpectedPerSlot, loads};
pub use spots::Spot;

use crate::bitstream::BitstreamId;
use crate::signals::{AskedKind, Boards, Key};
use crate::staleness::Received;
use crate::units::{Millis, MonotonicTime};
use claims::overlap;
use means::Owner;
use piece::Piece;
use spots::Spots;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use unconfirmed::Unconfirmed;

/// Most pods of one node that are kept; Kubernetes recommends at most 110 on a node.
pub const MAX_PODS_PER_NODE: usize = 1024;
/// Most decisions that wait for their binding.
pub const MAX_HINTS: usize = 4096;
/// Most pods that are known to wait for a node.
pub const MAX_WAITING: usize = 65_536;
/// Most nodes that a hint is split over: a smaller share than that of one in so many says nothing.
pub const MAX_HINTED_NODES: usize = 64;
/// Longest UID that is taken from a request; the API server's have 36 bytes.
pub const MAX_UID_BYTES: usize = 128;
/// How long a decision waits for its binding.
pub const HINT: Millis = Millis::from_secs(5);

/// The pods that were seen bound, and the decisions that wait to be.
#[derive(Debug, Default)]
pub struct ExpectedLoads {
    nodes: Spots<NodePods>,
    places: HashMap<Arc<str>, Arc<str>>,
    hints: HashMap<Arc<str>, Hinted>,
    /// When each was given, the oldest first; also those that have ended or were given anew since.
    hinted: VecDeque<(MonotonicTime, Arc<str>)>,
    /// UIDs of the pods that wait for a node.
    waiting: HashSet<Box<str>>,
    /// Decisions for pods that are not known to wait.
    unconfirmed: Unconfirmed,
    means: means::Means,
}

/// A pod that is bound to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPod {
    /// Its UID.
    pub uid: String,
    /// UID of its controller, if it has one.
    pub owner: Option<String>,
    /// Its node.
    pub node: String,
    /// The kind of board that it asks for.
    pub kind: AskedKind,
    /// What it names as its bitstreams.
    pub bitstreams: Vec<BitstreamId>,
}

/// What is still expected on the boards of one kind of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// Of pods whose usage can be foretold: how much more they will use.
    pub usage: Millis,
    /// Of pods that nothing is known of: how many, a pod counting less the longer it is there.
    pub unknown: f64,
    /// What of the boards' measured usage is shown to be theirs.
    pub shown: Millis,
    /// All these pods together, hints by their share.
    pub pods: f64,
}

/// What became of a pod that was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is kept, or was before.
    Yes,
    /// Its node has too many.
    NoRoom,
}

/// In the order in which a decision reads it.
#[derive(Debug, Default)]
#[repr(C)]
struct NodePods {
    hints: Vec<Hint>,
    /// What was last reckoned of the pods. Decisions at once reckon the same.
    piece: Mutex<Option<Piece>>,
    /// The longest there first.
    pods: Vec<Bound>,
}

#[derive(Debug)]
struct Bound {
    uid: Arc<str>,
    owner: Option<Arc<Owner>>,
    kind: AskedKind,
    /// The first of its bitstreams lies here: most pods have but one, and it is looked at in every decision.
    bitstream: Option<Key>,
    more_bitstreams: Box<[Key]>,
    seen: MonotonicTime,
    elapsed_then: Millis,
}

#[derive(Debug)]
struct Hinted {
    since: MonotonicTime,
    nodes: Box<[Arc<str>]>,
}

#[derive(Debug)]
struct Hint {
    uid: Arc<str>,
    owner: Option<Arc<Owner>>,
    kind: AskedKind,
    share: f64,
    since: MonotonicTime,
}

impl ExpectedLoads {
    /// `pod` was seen bound now, `elapsed_then` after it was: zero, but at first sight what the API server's date says.
    /// A pod that is known keeps its time.
    pub fn bound(&mut self, pod: &PlacedPod, elapsed_then: Millis, now: MonotonicTime) -> Kept {
        self.waiting.remove(pod.uid.as_str());
        self.end_hint(&pod.uid);
        if self.places.get(pod.uid.as_str()).is_some_and(|node| **node == *pod.node) {
            return Kept::Yes;
        }
        self.gone(&pod.uid);
        let (name, node) = self.nodes.of(&pod.node);
        if node.pods.len() >= MAX_PODS_PER_NODE {
            return Kept::NoRoom;
        }
        let uid: Arc<str> = pod.uid.as_str().into();
        let place = node.pods.partition_point(|other| other.elapsed(now) >= elapsed_then);
        let bound = Bound {
            uid: Arc::clone(&uid),
            owner: pod.owner.as_deref().and_then(|owner| self.means.owner(owner)),
            kind: pod.kind,
            bitstream: pod.bitstreams.first().map(Key::of),
            more_bitstreams: pod.bitstreams.iter().skip(1).map(Key::of).collect(),
            seen: now,
            elapsed_then,
        };
        node.pods.insert(place, bound);
        node.forget_piece();
        self.places.insert(uid, name);
        Kept::Yes
    }

    /// The pod was seen waiting for a node: what was or will be decided for it counts.
    pub fn waits(&mut self, uid: &str, now: MonotonicTime) {
        let is_uid = !uid.is_empty() && uid.len() <= MAX_UID_BYTES;
        if !is_uid || self.places.contains_key(uid) || self.waiting.len() >= MAX_WAITING {
            return;
        }
        self.waiting.insert(uid.into());
        if let Some(decision) = self.unconfirmed.take(uid, now) {
            let best: Vec<&str> = decision.best.iter().map(|node| &**node).collect();
            self.put_hint(uid, decision.owner.as_deref(), decision.kind, &best, decision.since);
        }
    }

    /// The pod ended, or was deleted: nothing more is expected of it.
    pub fn gone(&mut self, uid: &str) {
        self.waiting.remove(uid);
        self.end_hint(uid);
        let Some(name) = self.places.remove(uid) else { return };
        self.on_node(&name, |node| node.pods.retain(|pod| &*pod.uid != uid));
    }

    /// A list was shown to its end: who was not in it is gone.
    pub fn listed(&mut self, uids: &HashSet<String>) {
        self.waiting.retain(|uid| uids.contains(&**uid));
        let gone: Vec<Arc<str>> =
            self.places.keys().filter(|uid| !uids.contains(&***uid)).map(Arc::clone).collect();
        for uid in gone {
            self.gone(&uid);
        }
    }

    /// A pod was scored just now and `best` are the nodes with the greatest score: one of them is likely to get it. Holds
    /// for [`HINT`], until the pod is seen bound, or until it is scored again; and counts once the pod is known to
    /// wait. `kind` is what it asks for.
    pub fn hint(
        &mut self,
        uid: &str,
        owner: Option<&str>,
        kind: AskedKind,
        best: &[&str],
        now: MonotonicTime,
    ) {
        self.forget_hints(now);
        self.end_hint(uid);
        if best.is_empty() || best.len() > MAX_HINTED_NODES || self.places.contains_key(uid) {
            return;
        }
        let owner = owner.filter(|owner| owner.len() <= MAX_UID_BYTES);
        if uid.is_empty() || uid.len() > MAX_UID_BYTES {
            return;
        }
        if self.waiting.contains(uid) {
            self.put_hint(uid, owner, kind, best, now);
        } else {
            self.unconfirmed.put(uid, owner, kind, best, now);
        }
    }

    fn put_hint(
        &mut self,
        uid: &str,
        owner: Option<&str>,
        kind: AskedKind,
        best: &[&str],
        since: MonotonicTime,
    ) {
        if self.hinted.len() >= MAX_HINTS {
            self.forget_oldest_hint();
        }
        let uid: Arc<str> = uid.into();
        let owner = owner.and_then(|owner| self.means.owner(owner));
        let share = 1.0 / best.len() as f64;
        let hint_at = |name: &&str| {
            let (name, node) = self.nodes.of(name);
            let (uid, owner) = (Arc::clone(&uid), owner.clone());
            node.hints.push(Hint { uid, owner, kind, share, since });
            name
        };
        let names = best.iter().map(hint_at).collect();
        self.hints.insert(Arc::clone(&uid), Hinted { since, nodes: names });
        self.hinted.push_back((since, uid));
    }

    /// What is still expected on the boards of this kind on the node of this state.
    #[must_use]
    pub fn on(&self, node: &str, received: &Received, kind: &AskedKind, now: MonotonicTime) -> Expected {
        self.nodes.get(node).map_or_else(Expected::default, |node| self.of(node, "", received, kind, now))
    }

    /// The same for a decision about the pod with the UID `asking`, whose own hint is not counted against it. `spot` is
    /// kept for this node's name by who asks often.
    #[must_use]
    pub fn on_spot(
        &self,
        spot: &Spot,
        node: &str,
        asking: &str,
        received: &Received,
        kind: &AskedKind,
        now: MonotonicTime,
    ) -> Expected {
        let node = self.nodes.at(spot, node);
        node.map_or_else(Expected::default, |node| self.of(node, asking, received, kind, now))
    }

    fn of(
        &self,
        node: &NodePods,
        asking: &str,
        received: &Received,
        kind: &AskedKind,
        now: MonotonicTime,
    ) -> Expected {
        let signals = received.signals();
        // Where all boards are alike all pods run on all of them, and one line serves everybody who asks.
        let kind = if signals.boards() == Boards::Uniform { &AskedKind::ANY } else { kind };
        let mut expected = Expected::default();
        let mut usage = 0.0;
        node.with_piece(received, &self.means, kind, now, |piece| {
            (usage, expected.unknown) = piece.at(now);
            (expected.pods, expected.shown) = (piece.pods, piece.shown);
        });
        let counts = |hint: &&Hint| now - hint.since < HINT && *hint.uid != *asking;
        for hint in node.hints.iter().filter(counts) {
            let share = hint.share * overlap(signals, &hint.kind, kind);
            expected.pods += share;
            match self.means.expected(hint.owner.as_deref()) {
                Some(mean) => usage += mean * share,
                None => expected.unknown += share,
            }
        }
        expected.usage = whole(usage);
        expected
    }

    /// What pods have been found to use, by the states of the nodes that are fresh.
    #[must_use]
    pub fn learnt<'n>(&self, state_of: impl Fn(&str) -> Option<&'n Received>, now: MonotonicTime) -> Learnt {
        let nodes = self.nodes.iter().filter_map(|(name, node)| Some((&node.pods, state_of(name)?)));
        Learnt::of_nodes(nodes, now)
    }

    /// From now on this is expected.
    pub fn expect(&mut self, learnt: &Learnt) {
        self.means.set(learnt);
    }

    /// How many pods are kept.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.places.len()
    }

    /// How many decisions wait for their binding.
    #[must_use]
    pub fn hints(&self) -> usize {
        self.hints.len()
    }

    /// Drops the decisions that waited too long.
    pub fn forget_hints(&mut self, now: MonotonicTime) {
        while self.hinted.front().is_some_and(|(since, _)| now - *since >= HINT) {
            self.forget_oldest_hint();
        }
        self.unconfirmed.forget(now);
    }

    fn forget_oldest_hint(&mut self) {
        let Some((since, uid)) = self.hinted.pop_front() else { return };
        // Not one that was given again since: that one has its own place.
        if self.hints.get(&uid).is_some_and(|hint| hint.since == since) {
            self.end_hint(&uid);
        }
    }

    fn end_hint(&mut self, uid: &str) {
        self.unconfirmed.remove(uid);
        let Some(hint) = self.hints.remove(uid) else { return };
        for name in &hint.nodes {
            self.on_node(name, |node| node.hints.retain(|hint| &*hint.uid != uid));
        }
    }

    /// Changes a node's pods, and forgets it if it has none left.
    fn on_node(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodePods)) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        change(node);
        node.forget_piece();
        if node.pods.is_empty() && node.hints.is_empty() {
            self.nodes.remove(name);
        }
    }
}

impl NodePods {
    /// Looks at the piece that holds now, where it lies: a decision does so thousands of times.
    fn with_piece(
        &self,
        received: &Received,
        means: &means::Means,
        kind: &AskedKind,
        now: MonotonicTime,
        look: impl FnOnce(&Piece),
    ) {
        let mut piece = self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        if !piece.as_ref().is_some_and(|piece| piece.holds(received, means, kind, now)) {
            *piece = None;
        }
        look(piece.get_or_insert_with(|| Piece::of(&self.pods, received, means, kind, now)));
    }

    fn forget_piece(&mut self) {
        *self.piece.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Bound {
    fn elapsed(&self, now: MonotonicTime) -> Millis {
        self.elapsed_then + (now - self.seen)
    }

    /// Usage of the boards that it runs on, as the state measured it since this pod was bound, in milliseconds; none while
    /// the pod can't have been part of it.
    fn shown(&self, received: &Received, now: MonotonicTime) -> f64 {
        let span = self.elapsed(now) - received.age(now);
        if span == Millis::ZERO {
            return 0.0;
        }
        let (state, signals) = (received.state(), received.signals());
        let used_since = |index: usize| {
            state.bitstreams.get(index).is_some_and(|bitstream| bitstream.last_used_ago <= span)
        };
        let its_own = |key: &Key| signals.bitstreams_with(*key).any(used_since);
        if self.bitstream.is_some() && !self.bitstream.iter().chain(&self.more_bitstreams).any(its_own) {
            return 0.0;
        }
        // What is left of the window once all but its newest part has passed.
        signals.usage_under(&self.kind, state.window - span).0 as f64
    }
}

/// Of a time in milliseconds, which is no negative number and far from the largest.
fn whole(millis: f64) -> Millis {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let millis = millis.round() as u64;
    Millis(millis)
}

//! The load that recently placed pods will add to a node before any measurement shows it (anti-herd).
//!
//! `load = measured + Σ e × max(0, 1 − elapsed / window)` over the pods that were seen bound to the node, `elapsed`
//! since their binding. `e` is the expected usage of a pod in a window: the mean of its owner's pods, else the mean of
//! the cluster's pods, else the least usage that costs one rank.
//!
//! Between a decision and its binding the pod is **assumed**, as in kube-scheduler: it counts on the best nodes, an
//! equal share on each. An assumed pod counts only while it is known to wait for a node ([`ExpectedLoads::waits`]), so
//! that requests about pods that do not exist add nothing to any node.
//!
//! **`e` ends early when the measurement shows the pod's own tasks.** A node's state does not attribute usage to pods.
//! So a pod's own usage is an equal share, among the node's pods, of the usage measured since its binding; it is zero
//! while none of the pod's bitstreams was used since. At most the rest of `e` is still expected then.
//!
//! All values are those of the boards of one kind: the kind that the pod of the decision requests. A pod's usage falls
//! on the boards of its kind, in proportion to their slots.
//!
//! The module has estimates only. An extender that loses them decides slightly worse for one window.

mod claims;
mod forecast;
mod means;
mod on_nodes;
mod rank_cost;
mod slot_map;
#[cfg(test)]
mod tests;
mod unconfirmed;

pub use means::Learnt;
pub(crate) use rank_cost::loads;
pub use slot_map::ArenaKey;

use crate::bitstream::BitstreamId;
use crate::signals::{AskedKind, Key};
use crate::staleness::Received;
use crate::units::{Millis, MonotonicTime};
use forecast::Forecasts;
use means::Owner;
#[cfg(test)]
use rank_cost::ExpectedPerSlot;
use slot_map::SlotMap;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use unconfirmed::Unconfirmed;

/// Maximum number of pods per node. Kubernetes recommends at most 110.
pub const MAX_PODS_PER_NODE: usize = 1024;
/// Maximum number of assumed pods.
pub const MAX_ASSUMED_PODS: usize = 4096;
/// Maximum number of pods that are known to wait for a node.
pub const MAX_WAITING: usize = 65_536;
/// Maximum number of nodes that an assumed pod is split over. A smaller share would not matter.
pub const MAX_ASSUMED_NODES: usize = 64;
/// Maximum length of a UID in a request, in bytes. UIDs of the API server have 36.
pub const MAX_UID_BYTES: usize = 128;
/// Time after which an assumed pod that was not seen bound no longer counts.
pub const ASSUMED_POD_TTL: Millis = Millis::from_secs(5);

/// The bound pods and the assumed pods of all nodes.
#[derive(Debug, Default)]
pub struct ExpectedLoads {
    nodes: SlotMap<NodePods>,
    forecasts: Forecasts,
    /// Node of each bound pod, by UID of the pod.
    node_of: HashMap<Arc<str>, Arc<str>>,
    /// Assumed pods by UID.
    assumed: HashMap<Arc<str>, AssumedPod>,
    /// Time and UID of each assumption, the oldest first. Includes assumptions that have ended or were renewed since.
    assumed_by_age: VecDeque<(MonotonicTime, Arc<str>)>,
    /// UIDs of the pods that are known to wait for a node.
    waiting: HashSet<Box<str>>,
    /// Decisions about pods that are not known to wait for a node.
    unconfirmed: Unconfirmed,
    means: means::Means,
}

/// A pod that is bound to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPod {
    /// UID of the pod.
    pub uid: String,
    /// UID of the pod's controller.
    pub owner: Option<String>,
    /// Name of the node.
    pub node: String,
    /// Kind of board that the pod requests.
    pub kind: AskedKind,
    /// Bitstreams that the pod names.
    pub bitstreams: Vec<BitstreamId>,
}

/// The usage that is still expected on the boards of one kind of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Expected {
    /// Usage that pods with a known mean will still add.
    pub usage: Millis,
    /// Number of pods without a known mean. A pod counts less the longer it is bound.
    pub unknown: f64,
    /// The part of the boards' measured usage that the pods without a known mean caused.
    pub shown: Millis,
    /// Number of all these pods. An assumed pod counts by its share.
    pub pods: f64,
}

/// Whether a bound pod is tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The pod is tracked.
    Yes,
    /// The pod is not tracked: its node has [`MAX_PODS_PER_NODE`] pods already.
    NoRoom,
}

/// The pods of a node.
#[derive(Debug, Default)]
struct NodePods {
    assumed: Vec<AssumedShare>,
    /// Bound pods, the one bound longest first.
    pods: Vec<Bound>,
}

#[derive(Debug)]
struct Bound {
    uid: Arc<str>,
    owner: Option<Arc<Owner>>,
    kind: AskedKind,
    /// First of the pod's bitstreams. It is stored inline, since most pods have only one and every decision reads it.
    bitstream: Option<Key>,
    more_bitstreams: Box<[Key]>,
    seen: MonotonicTime,
    elapsed_then: Millis,
}

#[derive(Debug)]
struct AssumedPod {
    since: MonotonicTime,
    nodes: Box<[Arc<str>]>,
}

#[derive(Debug)]
struct AssumedShare {
    uid: Arc<str>,
    owner: Option<Arc<Owner>>,
    kind: AskedKind,
    share: f64,
    since: MonotonicTime,
}

impl ExpectedLoads {
    /// Records that `pod` was seen bound now, `elapsed_then` after its binding. That is zero unless the caller sees
    /// the pod for the first time; then it follows from the API server's timestamp. A known pod keeps its time.
    pub fn bound(&mut self, pod: &PlacedPod, elapsed_then: Millis, now: MonotonicTime) -> Kept {
        self.waiting.remove(pod.uid.as_str());
        self.end_assumption(&pod.uid);
        if self.node_of.get(pod.uid.as_str()).is_some_and(|node| **node == *pod.node) {
            return Kept::Yes;
        }
        self.gone(&pod.uid);
        let (name, index, node) = self.nodes.of(&pod.node);
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
        self.forecasts.forget(index);
        self.node_of.insert(uid, name);
        Kept::Yes
    }

    /// Records that a pod waits for a node. Decisions about it count from now on, including one made before.
    pub fn waits(&mut self, uid: &str, now: MonotonicTime) {
        let is_uid = !uid.is_empty() && uid.len() <= MAX_UID_BYTES;
        if !is_uid || self.node_of.contains_key(uid) || self.waiting.len() >= MAX_WAITING {
            return;
        }
        self.waiting.insert(uid.into());
        if let Some(decision) = self.unconfirmed.take(uid, now) {
            let best: Vec<&str> = decision.best.iter().map(|node| &**node).collect();
            self.put_assumed(uid, decision.owner.as_deref(), decision.kind, &best, decision.since);
        }
    }

    /// Forgets a pod that ended or was deleted.
    pub fn gone(&mut self, uid: &str) {
        self.waiting.remove(uid);
        self.end_assumption(uid);
        let Some(name) = self.node_of.remove(uid) else { return };
        self.on_node(&name, |node| node.pods.retain(|pod| &*pod.uid != uid));
    }

    /// Forgets all pods that are not in `uids`, a complete list of pods.
    pub fn listed(&mut self, uids: &HashSet<String>) {
        self.waiting.retain(|uid| uids.contains(&**uid));
        let gone: Vec<Arc<str>> =
            self.node_of.keys().filter(|uid| !uids.contains(&***uid)).map(Arc::clone).collect();
        for uid in gone {
            self.gone(&uid);
        }
    }

    /// Assumes a pod that was scored just now on the nodes with the greatest score, `best`. The assumption ends after
    /// [`ASSUMED_POD_TTL`], when the pod is seen bound, or when the pod is scored again. It counts once the pod is known to wait
    /// for a node. `kind` is the kind of board that the pod requests.
    pub fn assume(
        &mut self,
        uid: &str,
        owner: Option<&str>,
        kind: AskedKind,
        best: &[&str],
        now: MonotonicTime,
    ) {
        self.expire_assumed(now);
        self.end_assumption(uid);
        if best.is_empty() || best.len() > MAX_ASSUMED_NODES || self.node_of.contains_key(uid) {
            return;
        }
        let owner = owner.filter(|owner| owner.len() <= MAX_UID_BYTES);
        if uid.is_empty() || uid.len() > MAX_UID_BYTES {
            return;
        }
        if self.waiting.contains(uid) {
            self.put_assumed(uid, owner, kind, best, now);
        } else {
            self.unconfirmed.put(uid, owner, kind, best, now);
        }
    }

    fn put_assumed(
        &mut self,
        uid: &str,
        owner: Option<&str>,
        kind: AskedKind,
        best: &[&str],
        since: MonotonicTime,
    ) {
        if self.assumed_by_age.len() >= MAX_ASSUMED_PODS {
            self.forget_oldest_assumed();
        }
        let uid: Arc<str> = uid.into();
        let owner = owner.and_then(|owner| self.means.owner(owner));
        let share = 1.0 / best.len() as f64;
        let share_at = |name: &&str| {
            let (name, _, node) = self.nodes.of(name);
            let (uid, owner) = (Arc::clone(&uid), owner.clone());
            node.assumed.push(AssumedShare { uid, owner, kind, share, since });
            name
        };
        let names = best.iter().map(share_at).collect();
        self.assumed.insert(Arc::clone(&uid), AssumedPod { since, nodes: names });
        self.assumed_by_age.push_back((since, uid));
    }

    /// Computes the mean usage of pods from the fresh states of their nodes.
    #[must_use]
    pub fn learnt<'n>(&self, state_of: impl Fn(&str) -> Option<&'n Received>, now: MonotonicTime) -> Learnt {
        let nodes = self.nodes.iter().filter_map(|(name, node)| Some((&node.pods, state_of(name)?)));
        Learnt::of_nodes(nodes, now)
    }

    /// Uses `learnt` for all further expectations.
    pub fn expect(&mut self, learnt: &Learnt) {
        self.means.set(learnt);
    }

    /// Number of bound pods.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.node_of.len()
    }

    /// Number of assumed pods.
    #[must_use]
    pub fn assumed_pods(&self) -> usize {
        self.assumed.len()
    }

    /// Ends the assumptions that are older than [`ASSUMED_POD_TTL`].
    pub fn expire_assumed(&mut self, now: MonotonicTime) {
        while self.assumed_by_age.front().is_some_and(|(since, _)| now - *since >= ASSUMED_POD_TTL) {
            self.forget_oldest_assumed();
        }
        self.unconfirmed.forget(now);
    }

    fn forget_oldest_assumed(&mut self) {
        let Some((since, uid)) = self.assumed_by_age.pop_front() else { return };
        // A renewed assumption has its own entry in the queue.
        if self.assumed.get(&uid).is_some_and(|pod| pod.since == since) {
            self.end_assumption(&uid);
        }
    }

    fn end_assumption(&mut self, uid: &str) {
        self.unconfirmed.remove(uid);
        let Some(pod) = self.assumed.remove(uid) else { return };
        for name in &pod.nodes {
            self.on_node(name, |node| node.assumed.retain(|pod| &*pod.uid != uid));
        }
    }

    /// Changes a node's pods, and removes the node if it has none left.
    fn on_node(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodePods)) {
        let Some((index, node)) = self.nodes.get_mut(name) else { return };
        change(node);
        self.forecasts.forget(index);
        if node.pods.is_empty() && node.assumed.is_empty() {
            self.nodes.remove(name);
        }
    }
}

impl Bound {
    fn elapsed(&self, now: MonotonicTime) -> Millis {
        self.elapsed_then + (now - self.seen)
    }

    /// Usage that the state measured since this pod's binding on the boards that the pod runs on, in milliseconds.
    /// Zero if the pod cannot have caused any of it.
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
        // The newest part of the window, `span` long.
        signals.usage_under(&self.kind, state.window - span).0 as f64
    }
}

/// Rounds a time in milliseconds, which is not negative and far below the maximum.
fn whole(millis: f64) -> Millis {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let down = millis as u64;
    // `f64::round` is a function call on processors without SSE 4.1.
    Millis(if millis - down as f64 >= 0.5 { down.saturating_add(1) } else { down })
}

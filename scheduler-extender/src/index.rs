//! The nodes of the cluster, in memory: written by the reflector and by streams, read by decisions.
//!
//! A node's annotation is decoded once per change, when it arrives. This module does no I/O and reads no clock: the
//! caller passes the time.

mod published;
mod table;
#[cfg(test)]
mod tests;

pub use published::{Changes, Version};
pub use table::{Nodes, Row};

use crate::clock::Moment;
use fpga_core::moved_off::{MOVED_OFF_ANNOTATION, MovedOff, MovedOffAnnotation};
use fpga_core::names::LIBRARY_VERSION_ANNOTATION;
use fpga_core::node_facts::NodeFacts;
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::codec::{MAX_DECODED_BYTES, Unreadable};
use fpga_core::node_state::{ANNOTATION, HEARTBEATS_UNTIL_STALE, NodeState, decode};
use fpga_core::node_terms::NodeTerms;
use fpga_core::staleness::{Knowledge, Received};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_node_stream::server::annotation_age;
use fpga_node_stream::server::receiver::{Taken, UnknownNode};
use fpga_registry_api::node_terms;
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{MappedRwLockReadGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use published::Published;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The nodes that the reflector knows.
#[derive(Debug, Default)]
pub struct NodeIndex {
    published: RwLock<Published>,
    /// Held while a node changes, from reading its previous value to writing the new one, because states arrive in
    /// two ways. Decisions hold only `published` and don't wait for this lock.
    changing: Mutex<()>,
    synced: AtomicBool,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Labels and state, as decisions read them.
    pub facts: NodeFacts,
    /// Origin of the state.
    pub source: Source,
    /// Why the annotation can't be read.
    pub problem: Option<Unreadable>,
    /// The last wake-up of rejected pods that a replica wrote on the node.
    pub wake_up: Option<WakeUp>,
    /// Which pods the node takes. Labels are kept of nodes with the annotation only, since no others take load.
    pub terms: Arc<NodeTerms>,
    /// Number of the change of the index that made this node what it is.
    change: u64,
    uid: Option<Arc<str>>,
    annotation: Option<Arc<str>>,
    moved_off: Option<Arc<str>>,
}

/// A value of the annotation by which rejected pods are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeUp {
    /// The value.
    pub value: Arc<str>,
    /// The moment at which the watch showed the value first. It was written before.
    pub seen: MonotonicTime,
}

/// The origin of a state, which determines the age of the state on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The node has no state.
    None,
    /// The annotation of a node in a list or of a new node; the state's age comes from the API server's date.
    FirstSight,
    /// As `FirstSight`, but without a date: the state counts as stale.
    Undated,
    /// A change of the annotation that the watch has seen.
    Watched,
    /// A stream of the collector.
    Stream,
}

/// A node as the reflector sees it.
#[derive(Debug, Clone, Default)]
pub struct SeenNode {
    /// Metadata of the node.
    pub metadata: ObjectMeta,
    terms: NodeTerms,
}

/// How the reflector learned of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// From the list at the start of a watch; the node may have changed long ago.
    Listed,
    /// From an event of the watch, just now.
    Changed,
}

/// The effect of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// No new state: the annotation is unchanged, absent, or not newer than a streamed state.
    Fine,
    /// The annotation's state is in the index.
    Taken,
    /// The annotation can't be read.
    Unreadable(Unreadable),
    /// The annotation's state is not newer than the known one and was ignored.
    Outdated,
}

/// Number of nodes with a state, by its origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Nodes whose state came by annotation.
    pub annotation: usize,
    /// Nodes whose state came by stream.
    pub stream: usize,
}

impl From<KubeNode> for SeenNode {
    fn from(node: KubeNode) -> Self {
        let mut terms = node_terms(&node);
        let annotations = node.metadata.annotations.as_ref();
        if annotations.is_none_or(|all| !all.contains_key(ANNOTATION)) {
            terms.labels.clear();
        }
        Self { metadata: node.metadata, terms }
    }
}

impl From<ObjectMeta> for SeenNode {
    /// A node that takes every pod.
    fn from(metadata: ObjectMeta) -> Self {
        Self { metadata, terms: NodeTerms::default() }
    }
}

impl Source {
    /// The name of the origin in answers and recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FirstSight => "firstSight",
            Self::Undated => "undated",
            Self::Watched => "watched",
            Self::Stream => "stream",
        }
    }
}

impl Node {
    /// The node with another state of its boards, received when the known one was.
    #[must_use]
    pub fn with_state(&self, received: &Received, state: NodeState) -> Self {
        self.with(Received::new(state, received.received_at(), received.age_at_receipt()))
    }

    #[cfg(test)]
    fn for_tests(facts: NodeFacts, source: Source) -> Self {
        let terms = Arc::default();
        Self {
            facts,
            source,
            problem: None,
            wake_up: None,
            terms,
            change: 0,
            uid: None,
            annotation: None,
            moved_off: None,
        }
    }

    fn with(&self, received: Received) -> Self {
        Self {
            facts: NodeFacts {
                labels: self.facts.labels.clone(),
                knowledge: Knowledge::Known(Box::new(received)),
                moved_off: self.facts.moved_off.clone(),
            },
            source: self.source,
            problem: self.problem.clone(),
            wake_up: self.wake_up.clone(),
            terms: Arc::clone(&self.terms),
            change: self.change,
            uid: self.uid.clone(),
            annotation: self.annotation.clone(),
            moved_off: self.moved_off.clone(),
        }
    }
}

impl NodeIndex {
    /// The nodes now. The guard blocks changes, so hold it for one decision only.
    pub fn read(&self) -> MappedRwLockReadGuard<'_, Nodes> {
        RwLockReadGuard::map(self.published.read(), Published::nodes)
    }

    /// What has changed since a version, or all nodes if there is none, or if this index can't tell any more.
    #[must_use]
    pub fn since(&self, version: Option<Version>) -> Changes {
        self.published.read().since(version)
    }

    /// Whether all nodes of the cluster have been listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Updates the index with a node that the reflector has seen at the time `at`.
    pub fn apply(&self, node: impl Into<SeenNode>, shown: Shown, at: Moment) -> Noted {
        let SeenNode { metadata: node, terms } = node.into();
        let Some(name) = node.name.as_deref() else { return Noted::Fine };
        let labels = NodeLabels::of_node(|key| node.labels.as_ref()?.get(key).map(String::as_str));
        let annotation = node.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        let annotation = annotation.map(String::as_str);
        let moved_off = node.annotations.as_ref().and_then(|all| all.get(MOVED_OFF_ANNOTATION));
        let moved_off = moved_off.map(String::as_str);
        let wake_up = node.annotations.as_ref().and_then(|all| all.get(LIBRARY_VERSION_ANNOTATION));

        let _changing = self.change();
        let nodes = self.read();
        let known = nodes.get(name).filter(|known| known.uid.as_deref() == node.uid.as_deref());
        let same_text = known.is_some_and(|known| known.annotation.as_deref() == annotation);
        let same_moves = known.is_some_and(|known| known.moved_off.as_deref() == moved_off);
        let known_wake_up = known.and_then(|known| known.wake_up.clone());
        let wake_up = match (known_wake_up, wake_up) {
            (Some(known), Some(value)) if *known.value == **value => Some(known),
            (_, value) => value.map(|value| WakeUp { value: Arc::from(value.as_str()), seen: at.now }),
        };
        let same_wake_up = known.is_some_and(|known| known.wake_up == wake_up);
        let same_labels = known.is_some_and(|known| known.facts.labels == labels && *known.terms == terms);
        if same_text && same_moves && same_wake_up && same_labels {
            return Noted::Fine;
        }
        // A fresh streamed state survives a change of the annotation, unless the annotation's state is newer.
        let streamed = known
            .filter(|known| known.source == Source::Stream && known.facts.knowledge.fresh(at.now).is_some());
        let as_it_is = |known: &Node| (known.facts.knowledge.clone(), known.source);
        let ((knowledge, source), problem, noted) = match (annotation, known) {
            (_, Some(known)) if same_text => (as_it_is(known), known.problem.clone(), Noted::Fine),
            (None, _) => (streamed.map_or(NOTHING, |known| as_it_is(known)), None, Noted::Fine),
            (Some(text), known) => match decode(text) {
                Err(problem) => {
                    let unreadable = (Knowledge::Unreadable, Source::None);
                    let knowledge = streamed.map_or(unreadable, |known| as_it_is(known));
                    (knowledge, Some(problem.clone()), Noted::Unreadable(problem))
                }
                Ok(state) => match known.filter(|known| known.facts.knowledge.outdates(&state, at.now)) {
                    // Annotation and stream can overtake each other.
                    Some(known) if streamed.is_some() => (as_it_is(known), None, Noted::Fine),
                    Some(known) => (as_it_is(known), None, Noted::Outdated),
                    None => {
                        let first = shown == Shown::Listed || known.is_none();
                        let (source, age_then) = if first { dated(&node, &state, at) } else { WATCHED };
                        let received = Received::new(state, at.now, age_then);
                        ((Knowledge::Known(Box::new(received)), source), None, Noted::Taken)
                    }
                },
            },
        };
        // An unchanged annotation keeps its moments: the wall clock may have stepped since.
        let moved = match (known, moved_off) {
            (Some(known), _) if same_moves => known.facts.moved_off.clone(),
            (_, Some(text)) => MovedOffAnnotation::parse(text).at(at),
            (_, None) => MovedOff::default(),
        };
        let annotation = annotation.filter(|text| text.len() <= MAX_DECODED_BYTES).map(Arc::from);
        drop(nodes);

        let moved_off = moved_off.map(Arc::from);
        let facts = NodeFacts { labels, knowledge, moved_off: moved };
        let uid = node.uid.map(Arc::from);
        let terms = Arc::new(terms);
        let node = Node { facts, source, problem, wake_up, terms, change: 0, uid, annotation, moved_off };
        let replaced = self.write().put(name, node);
        // Freed after the lock is released.
        drop(replaced);
        noted
    }

    /// Updates the index with `state`, which a collector sent at the time `at` for the node `name` with the UID
    /// `uid`.
    ///
    /// # Errors
    /// [`UnknownNode`]
    pub fn stream(&self, name: &str, uid: &str, state: NodeState, at: Moment) -> Result<Taken, UnknownNode> {
        // Computes the signals before taking a lock.
        let received = Received::new(state, at.now, Millis::ZERO);
        let _changing = self.change();
        let known = self.find(name, uid)?;
        if known.facts.knowledge.outdates(received.state(), at.now) {
            return Ok(Taken::Outdated);
        }
        let node = Node { source: Source::Stream, ..known.with(received) };
        let replaced = self.write().put(name, node);
        // Freed after the lock is released.
        drop(replaced);
        Ok(Taken::Yes)
    }

    /// The node `name`, if its UID is `uid`.
    ///
    /// # Errors
    /// [`UnknownNode`]
    pub fn find(&self, name: &str, uid: &str) -> Result<Arc<Node>, UnknownNode> {
        let node = self.read().get(name).cloned().ok_or(UnknownNode::Name)?;
        if node.uid.as_deref() == Some(uid) { Ok(node) } else { Err(UnknownNode::Uid) }
    }

    /// The first name among nodes with a board, and the last wake-up there. Nodes with labels and no state come last.
    #[must_use]
    pub fn first_with_boards(&self) -> Option<(String, Option<WakeUp>)> {
        let nodes = self.read();
        let has_boards =
            |node: &Node| node.facts.knowledge.state().is_some_and(|state| !state.devices.is_empty());
        let with_state = nodes.iter().filter(|(_, node)| has_boards(node)).map(|(name, _)| name);
        let labelled =
            || nodes.iter().filter(|(_, node)| !node.facts.labels.is_empty()).map(|(name, _)| name);
        let first = with_state.min().or_else(|| labelled().min())?;
        Some((first.to_string(), nodes.get(first).and_then(|node| node.wake_up.clone())))
    }

    /// Counts the nodes that have a state, by its origin.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for node in self.read().values() {
            match node.source {
                Source::None => {}
                Source::Stream => census.stream += 1,
                Source::FirstSight | Source::Undated | Source::Watched => census.annotation += 1,
            }
        }
        census
    }

    /// Removes a node.
    pub fn delete(&self, name: &str) {
        let _changing = self.change();
        self.write().remove(name);
    }

    /// Removes the nodes that are not in `names`, which come from a complete list. From then on the index is synced.
    pub fn listed(&self, names: &HashSet<String>) {
        let _changing = self.change();
        self.write().retain(|name| names.contains(name));
        self.synced.store(true, Ordering::Release);
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Published> {
        self.published.write()
    }
}

/// Knowledge of a node without annotation and stream.
const NOTHING: (Knowledge, Source) = (Knowledge::Absent, Source::None);

/// A state that the watch delivers is new: its age counts from its receipt.
const WATCHED: (Source, Millis) = (Source::Watched, Millis::ZERO);

/// Origin and age of a state at first sight, by the API server's date of the last write to the annotation.
fn dated(node: &ObjectMeta, state: &NodeState, at: Moment) -> (Source, Millis) {
    match annotation_age(node, at.wall) {
        Some(age) => (Source::FirstSight, age),
        None => {
            let stale = Millis(state.heartbeat.0.saturating_mul(HEARTBEATS_UNTIL_STALE).saturating_add(1));
            (Source::Undated, stale)
        }
    }
}

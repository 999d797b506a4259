//! What is known of the cluster's nodes, in memory: fed by the reflector and by streams, read by decisions.
//!
//! A node's annotation is decoded once per change, when it arrives. No I/O here and no clock: whoever brings a node
//! says when it was seen.

#[cfg(test)]
mod tests;

use crate::clock::Moment;
use foldhash::fast::RandomState;
use fpga_core::expected_load::ArenaKey;
use fpga_core::node_facts::NodeFacts;
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::codec::{MAX_DECODED_BYTES, Unreadable};
use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER, HEARTBEATS_UNTIL_STALE, NodeState, decode};
use fpga_core::staleness::{Knowledge, Received};
use fpga_core::units::{Millis, WallTime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// All nodes by name. Looked up by the thousand in every decision; their names come from the API server, not from
/// whoever asks, so a fast hash will do.
pub type Nodes = HashMap<Box<str>, Arc<Node>, RandomState>;

/// The nodes that the reflector has shown.
#[derive(Debug, Default)]
pub struct NodeIndex {
    nodes: RwLock<Nodes>,
    /// Held by whoever changes a node from the look at what it was to the end: states come two ways. Decisions, which
    /// hold `nodes`, don't wait for it.
    changing: Mutex<()>,
    synced: AtomicBool,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    /// What decisions see of it.
    pub facts: NodeFacts,
    /// How its state came here.
    pub source: Source,
    /// Why its annotation can't be read.
    pub problem: Option<Unreadable>,
    /// Where its pods are among the expectations.
    pub arena_key: ArenaKey,
    uid: Option<Arc<str>>,
    annotation: Option<Arc<str>>,
}

/// How a state came here: that decides how old it was on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// There is no state.
    None,
    /// Found in a list, or on a node never seen before: as old as the API server's date says.
    FirstSight,
    /// Found like that, and nobody knows how old: stale until the next one.
    Undated,
    /// Seen when it changed.
    Watched,
    /// Sent by the collector itself.
    Stream,
}

/// How a node was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In the list with which a watch begins, or begins anew: it may have changed long ago.
    Listed,
    /// As a change, just now.
    Changed,
}

/// What became of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// It is the one that was there, or is older than what was streamed, or there is none.
    Fine,
    /// Decisions see it.
    Taken,
    /// It can't be read.
    Unreadable(Unreadable),
    /// It is not newer than the one that is known, and was ignored.
    Outdated,
}

/// What became of a state that a collector sent itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streamed {
    /// Decisions see it.
    Taken,
    /// A state at least as new is known.
    Outdated,
    /// There is no such node.
    UnknownNode,
    /// The node of this name is another object.
    OtherUid,
}

/// How many nodes have a state, by what brought it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// The annotation.
    pub annotation: usize,
    /// A stream.
    pub stream: usize,
}

impl Source {
    /// Its name in answers and recordings.
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

impl NodeIndex {
    /// The nodes as they are now; hold it for one decision only.
    pub fn read(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all nodes of the cluster have been shown once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// A node was shown.
    pub fn apply(&self, node: ObjectMeta, shown: Shown, at: Moment) -> Noted {
        let Some(name) = node.name.as_deref() else { return Noted::Fine };
        let labels = NodeLabels::of_node(|key| node.labels.as_ref()?.get(key).map(String::as_str));
        let annotation = node.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        let annotation = annotation.map(String::as_str);

        let _changing = self.change();
        let nodes = self.read();
        let known = nodes.get(name).filter(|known| known.uid.as_deref() == node.uid.as_deref());
        let same_text = known.is_some_and(|known| known.annotation.as_deref() == annotation);
        if same_text && known.is_some_and(|known| known.facts.labels == labels) {
            return Noted::Fine;
        }
        // What was streamed outlives a change of the annotation, unless that is newer.
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
                    // The two ways overtake each other.
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
        let annotation = annotation.filter(|text| text.len() <= MAX_DECODED_BYTES).map(Arc::from);
        // It is the name's, whatever object has it.
        let arena_key = nodes.get(name).map(|known| known.arena_key.clone()).unwrap_or_default();
        let name: Box<str> = name.into();
        drop(nodes);

        let facts = NodeFacts { labels, knowledge };
        let node = Node { facts, source, problem, arena_key, uid: node.uid.map(Arc::from), annotation };
        self.write().insert(name, Arc::new(node));
        noted
    }

    /// A collector sent `state` for the node `name`, which it takes for the object `uid`.
    pub fn stream(&self, name: &str, uid: &str, state: NodeState, at: Moment) -> Streamed {
        // What was made of the state is reckoned before anybody has to wait.
        let received = Received::new(state, at.now, Millis::ZERO);
        let _changing = self.change();
        let known = match self.find(name, uid) {
            Ok(known) => known,
            Err(refused) => return refused,
        };
        if known.facts.knowledge.outdates(received.state(), at.now) {
            return Streamed::Outdated;
        }
        let node = Node {
            facts: NodeFacts {
                labels: known.facts.labels.clone(),
                knowledge: Knowledge::Known(Box::new(received)),
            },
            source: Source::Stream,
            problem: known.problem.clone(),
            arena_key: known.arena_key.clone(),
            uid: known.uid.clone(),
            annotation: known.annotation.clone(),
        };
        let replaced = self.write().get_mut(name).map(|slot| std::mem::replace(slot, Arc::new(node)));
        // Freed after the lock is.
        drop(replaced);
        Streamed::Taken
    }

    /// The node `name`, if it is the object `uid`.
    ///
    /// # Errors
    /// [`Streamed::UnknownNode`] or [`Streamed::OtherUid`].
    pub fn find(&self, name: &str, uid: &str) -> Result<Arc<Node>, Streamed> {
        let node = self.read().get(name).cloned().ok_or(Streamed::UnknownNode)?;
        if node.uid.as_deref() == Some(uid) { Ok(node) } else { Err(Streamed::OtherUid) }
    }

    /// How many nodes have a state.
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

    /// A node is gone.
    pub fn delete(&self, name: &str) {
        let _changing = self.change();
        self.write().remove(name);
    }

    /// A list was shown to its end: who was not in it is gone.
    pub fn listed(&self, names: &HashSet<String>) {
        let _changing = self.change();
        self.write().retain(|name, _| names.contains(&**name));
        self.synced.store(true, Ordering::Release);
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody said anything.
const NOTHING: (Knowledge, Source) = (Knowledge::Absent, Source::None);

/// From then on the extender's own receipt counts.
const WATCHED: (Source, Millis) = (Source::Watched, Millis::ZERO);

/// Age of a state at first sight, by the date that the API server gave its author's fields.
fn dated(node: &ObjectMeta, state: &NodeState, at: Moment) -> (Source, Millis) {
    let fields = node.managed_fields.as_deref().unwrap_or_default();
    let by_author = fields.iter().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    let by_owner = fields.iter().filter(|entry| owns_annotation(entry));
    let latest = |entries: &mut dyn Iterator<Item = &ManagedFieldsEntry>| {
        entries.filter_map(|entry| u64::try_from(entry.time.as_ref()?.0.as_millisecond()).ok()).max()
    };
    match latest(&mut by_author.filter(|entry| owns_annotation(entry)))
        .or_else(|| latest(&mut by_owner.into_iter()))
    {
        Some(time) => (Source::FirstSight, at.wall - WallTime(time)),
        None => {
            let stale = Millis(state.heartbeat.0.saturating_mul(HEARTBEATS_UNTIL_STALE).saturating_add(1));
            (Source::Undated, stale)
        }
    }
}

fn owns_annotation(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:metadata/f:annotations"));
    fields.and_then(|annotations| annotations.get(format!("f:{ANNOTATION}"))).is_some()
}

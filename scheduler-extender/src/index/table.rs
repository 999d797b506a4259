//! All nodes by name. A decision reads thousands of nodes, and most of all waits for memory. So the values that it reads
//! lie in rows, and the rest of each node is behind a pointer.

use super::{Node, Source};
use foldhash::fast::RandomState;
use fpga_core::expected_load::ArenaKey;
use fpga_core::node_facts::KnownNode;
use fpga_core::staleness::Brief;
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The nodes. The names come from the API server, not from requests, so a fast hash suffices.
#[derive(Debug, Default)]
pub struct Nodes {
    rows: HashTable<u32>,
    hasher: RandomState,
    entries: Vec<Entry>,
    briefs: Vec<Option<Brief>>,
}

/// A node but for its brief.
#[derive(Debug)]
struct Entry {
    name: Box<str>,
    node: Arc<Node>,
    arena_key: ArenaKey,
    /// The row that followed this one in the last request. A hint that may be wrong.
    next: AtomicU32,
    source: Source,
    has_moved_off: bool,
}

/// The row of a node, as long as no node changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row(u32);

/// In a request of a new order most hints are wrong: after a wrong one, so many names are hashed before the next is tried.
const HINT_INTERVAL: usize = 8;

impl Nodes {
    /// The row of the node with this name.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<Row> {
        self.row_of(name.as_bytes())
    }

    fn row_of(&self, name: &[u8]) -> Option<Row> {
        let is_it = |row: &u32| self.entries.get(*row as usize).is_some_and(|entry| entry.is(name));
        self.rows.find(hash(&self.hasher, name), is_it).copied().map(Row)
    }

    /// The row of each of these names. Requests come in similar orders: kube-scheduler asks for the scores of the nodes that
    /// the filter returned, in its order. So the name that followed last time is tried before a name is hashed.
    #[must_use]
    pub fn rows<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> Vec<Option<Row>> {
        let (mut before, mut misses) = (None::<&AtomicU32>, 0_usize);
        let found = names.map(|name| {
            if misses.is_multiple_of(HINT_INTERVAL) {
                let likely = before.map_or(0, |next| next.load(Ordering::Relaxed));
                if let Some(entry) = self.entries.get(likely as usize).filter(|entry| entry.is(name)) {
                    (before, misses) = (Some(&entry.next), 0);
                    return Some(Row(likely));
                }
            }
            misses += 1;
            let Row(row) = self.row_of(name)?;
            if let Some(next) = before {
                next.store(row, Ordering::Relaxed);
            }
            before = self.entries.get(row as usize).map(|entry| &entry.next);
            Some(Row(row))
        });
        found.collect()
    }

    /// The node in a row of this table, for a decision.
    #[must_use]
    pub fn known(&self, Row(row): Row) -> KnownNode<'_> {
        let (entry, brief) = (&self.entries[row as usize], &self.briefs[row as usize]);
        KnownNode { brief: brief.as_ref(), has_moved_off: entry.has_moved_off, facts: &entry.node.facts }
    }

    /// The origin of the state of the node in a row of this table.
    #[must_use]
    pub fn source(&self, Row(row): Row) -> Source {
        self.entries[row as usize].source
    }

    /// The node in a row of this table, with its name and the key of its expected loads.
    #[must_use]
    pub fn keyed(&self, row: Row) -> (&str, &ArenaKey, KnownNode<'_>) {
        let entry = &self.entries[row.0 as usize];
        (&entry.name, &entry.arena_key, self.known(row))
    }

    /// The node in a row of this table.
    #[must_use]
    pub fn at(&self, Row(row): Row) -> &Arc<Node> {
        &self.entries[row as usize].node
    }

    /// The node with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Node>> {
        self.row(name).map(|row| self.at(row))
    }

    /// Whether there is a node with this name.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.row(name).is_some()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.name)
    }

    /// The nodes, in no order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.entries.iter().map(|entry| &entry.node)
    }

    /// The nodes with their names, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Node>)> {
        self.entries.iter().map(|entry| (&*entry.name, &entry.node))
    }

    /// Puts a node. Returns the one that it replaces.
    pub(super) fn put(&mut self, name: &str, node: Arc<Node>) -> Option<Arc<Node>> {
        let KnownNode { brief, has_moved_off, .. } = node.facts.known();
        let (brief, source) = (brief.cloned(), node.source);
        if let Some(Row(row)) = self.row(name) {
            self.briefs[row as usize] = brief;
            let entry = &mut self.entries[row as usize];
            (entry.source, entry.has_moved_off) = (source, has_moved_off);
            return Some(std::mem::replace(&mut entry.node, node));
        }
        let Ok(row) = u32::try_from(self.entries.len()) else { return None };
        let (arena_key, next) = (ArenaKey::default(), AtomicU32::new(row.wrapping_add(1)));
        self.entries.push(Entry { name: name.into(), node, arena_key, next, source, has_moved_off });
        self.briefs.push(brief);
        let Self { rows, hasher, entries, .. } = self;
        let hash_of = |row: &u32| hash(hasher, entries[*row as usize].name.as_bytes());
        rows.insert_unique(hash(hasher, name.as_bytes()), row, hash_of);
        None
    }

    /// Removes a node. The last row takes its place.
    pub(super) fn remove(&mut self, name: &str) -> Option<Box<str>> {
        let Row(row) = self.row(name)?;
        let last = u32::try_from(self.entries.len() - 1).ok()?;
        if let Ok(entry) = self.rows.find_entry(hash(&self.hasher, name.as_bytes()), |other| *other == row) {
            entry.remove();
        }
        let of_last = hash(&self.hasher, self.entries[last as usize].name.as_bytes());
        if let Some(moved) = self.rows.find_mut(of_last, |other| *other == last) {
            *moved = row;
        }
        self.briefs.swap_remove(row as usize);
        Some(self.entries.swap_remove(row as usize).name)
    }
}

impl Entry {
    fn is(&self, name: &[u8]) -> bool {
        *self.name.as_bytes() == *name
    }
}

fn hash(by: &RandomState, name: &[u8]) -> u64 {
    let mut hasher = by.build_hasher();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::moved_off::{MovedOff, MovedOffAnnotation};
    use fpga_core::node_facts::NodeFacts;
    use fpga_core::node_state::decode;
    use fpga_core::staleness::{Knowledge, Received};
    use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A node whose state has this number; without one if it is 0.
    fn node(number: u64) -> Arc<Node> {
        let state = format!(
            r#"{{"v":1,"boot":{number},"seq":1,"heartbeatMs":60000,"measuredAtMs":5,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"window":{{"bucketMs":10000}}}}"#
        );
        let received = Received::new(decode(&state).unwrap(), MonotonicTime(number), Millis::ZERO);
        let moved = MovedOffAnnotation::default().with("shop/rs".into(), WallTime(9), WallTime(1)).unwrap();
        let at = Moment { now: MonotonicTime(1), wall: WallTime(1) };
        let facts = NodeFacts {
            knowledge: if number == 0 { Knowledge::Absent } else { Knowledge::Known(Box::new(received)) },
            moved_off: if number.is_multiple_of(2) { moved.at(at) } else { MovedOff::default() },
            ..NodeFacts::default()
        };
        Arc::new(Node::for_tests(facts, if number == 0 { Source::None } else { Source::Stream }))
    }

    proptest! {
        #[test]
        fn a_row_says_of_a_node_what_the_node_says(
            changes in prop::collection::vec((0..6_usize, prop::option::of(0..9_u64)), 0..60),
            asked in prop::collection::vec(0..6_usize, 0..20),
        ) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let (mut nodes, mut model) = (Nodes::default(), BTreeMap::new());
            for (name, change) in changes {
                let name = names[name];
                match change {
                    Some(number) => {
                        let node = node(number);
                        prop_assert_eq!(
                            nodes.put(name, Arc::clone(&node)).map(|node| node.facts.clone()),
                            model.insert(name, node).map(|node: Arc<Node>| node.facts.clone())
                        );
                    }
                    None => prop_assert_eq!(nodes.remove(name).is_some(), model.remove(name).is_some()),
                }
                prop_assert_eq!(nodes.iter().count(), model.len());
                let asked = asked.iter().map(|name| names[*name]);
                prop_assert_eq!(nodes.rows(asked.clone().map(str::as_bytes)), asked.map(|name| nodes.row(name)).collect::<Vec<_>>());
                for name in names {
                    let row = nodes.row(name);
                    prop_assert_eq!(row.is_some(), model.contains_key(name));
                    let (Some(row), Some(node)) = (row, model.get(name)) else { continue };
                    let (known, expected) = (nodes.known(row), node.facts.known());
                    prop_assert!(Arc::ptr_eq(nodes.at(row), node));
                    prop_assert_eq!((known.brief, known.has_moved_off), (expected.brief, expected.has_moved_off));
                    prop_assert_eq!(nodes.source(row), node.source);
                }
            }
        }
    }
}

//! The nodes, with the number of the change that made each of them what it is, so that a reader gets what has changed since
//! it read last.

use super::{Node, Nodes};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::str::FromStr;
use std::sync::Arc;

/// Removed nodes that are remembered. Who has missed the removal of an earlier one gets all nodes.
const MAX_GONE: usize = 1024;

/// The nodes, the number of the last change, and the names of nodes that have gone.
#[derive(Debug)]
pub(super) struct Published {
    nodes: Nodes,
    /// Number that differs between processes, so that nobody takes a version of another one for ours.
    instance: u64,
    /// Number of changes so far.
    changes: u64,
    /// The last removed nodes, each with the number of its change.
    gone: VecDeque<(u64, Box<str>)>,
    /// Number of the change that removed the last node that is not in `gone` any more.
    forgotten: u64,
}

/// A moment in the life of an index: the nodes as they are after one of its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    instance: u64,
    change: u64,
}

/// The text is no [`Version`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a version of the nodes")]
pub struct InvalidVersion;

/// What has changed of the nodes.
#[derive(Debug)]
pub struct Changes {
    /// The version that these changes lead to.
    pub version: Version,
    /// Whether `nodes` are all nodes that there are.
    pub is_whole: bool,
    /// The nodes that are new or changed, in no order.
    pub nodes: Vec<(Box<str>, Arc<Node>)>,
    /// The names of nodes that have gone.
    pub gone: Vec<Box<str>>,
}

impl Default for Published {
    fn default() -> Self {
        // The standard library's hasher begins with random keys.
        let instance = RandomState::new().build_hasher().finish();
        Self { nodes: Nodes::default(), instance, changes: 0, gone: VecDeque::new(), forgotten: 0 }
    }
}

impl Published {
    /// The nodes.
    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Puts a node. Returns the one that it replaces.
    pub(super) fn put(&mut self, name: &str, mut node: Node) -> Option<Arc<Node>> {
        self.changes += 1;
        node.change = self.changes;
        self.nodes.put(name, Arc::new(node))
    }

    /// Removes a node, if it is there.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(name) = self.nodes.remove(name) {
            self.has_gone(name);
        }
    }

    /// Removes the nodes whose names are not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let unwanted: Vec<Box<str>> =
            self.nodes.keys().filter(|name| !is_wanted(name)).map(Box::from).collect();
        unwanted.iter().for_each(|name| self.remove(name));
    }

    fn has_gone(&mut self, name: Box<str>) {
        self.changes += 1;
        self.gone.push_back((self.changes, name));
        if self.gone.len() > MAX_GONE
            && let Some((change, _)) = self.gone.pop_front()
        {
            self.forgotten = change;
        }
    }

    /// What has changed since a version of this index; all nodes if there is none, or if it is too long ago.
    pub(super) fn since(&self, version: Option<Version>) -> Changes {
        let is_known = |version: &Version| {
            version.instance == self.instance && (self.forgotten..=self.changes).contains(&version.change)
        };
        let since = version.filter(is_known).map(|version| version.change);
        let is_new = |change: u64| since.is_none_or(|since| change > since);
        let gone = self
            .gone
            .iter()
            .filter(|(change, name)| since.is_some() && is_new(*change) && !self.nodes.contains_key(name));
        let nodes = self.nodes.iter().filter(|(_, node)| is_new(node.change));
        Changes {
            version: Version { instance: self.instance, change: self.changes },
            is_whole: since.is_none(),
            nodes: nodes.map(|(name, node)| (Box::from(name), Arc::clone(node))).collect(),
            gone: gone.map(|(_, name)| name.clone()).collect(),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.instance, self.change)
    }
}

impl FromStr for Version {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (instance, change) = text.split_once('-').ok_or(InvalidVersion)?;
        let instance = u64::from_str_radix(instance, 16).map_err(|_| InvalidVersion)?;
        let change = change.parse().map_err(|_| InvalidVersion)?;
        Ok(Self { instance, change })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::index::{NodeIndex, Shown};
    use fpga_core::units::{MonotonicTime, WallTime};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use std::collections::HashSet;

    fn show(index: &NodeIndex, name: &str, board: &str) {
        let node = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("fpga-scheduling.io/board".to_owned(), board.to_owned())].into()),
            ..ObjectMeta::default()
        };
        index.apply(node, Shown::Changed, Moment { now: MonotonicTime(0), wall: WallTime(0) });
    }

    fn names(changes: &Changes) -> (Vec<&str>, Vec<&str>) {
        let mut nodes: Vec<&str> = changes.nodes.iter().map(|(name, _)| &**name).collect();
        let mut gone: Vec<&str> = changes.gone.iter().map(|name| &**name).collect();
        nodes.sort_unstable();
        gone.sort_unstable();
        (nodes, gone)
    }

    #[test]
    fn a_reader_gets_what_has_changed_since_its_version_and_no_more() {
        let index = NodeIndex::default();
        for name in ["a", "b", "c"] {
            show(&index, name, "a10");
        }
        let whole = index.since(None);
        assert_eq!((names(&whole), whole.is_whole), ((vec!["a", "b", "c"], vec![]), true));
        let nothing = index.since(Some(whole.version));
        assert_eq!((names(&nothing), nothing.is_whole), ((vec![], vec![]), false));
        assert_eq!(nothing.version, whole.version);
        show(&index, "b", "a10");
        assert_eq!(index.since(Some(whole.version)).version, whole.version, "b is as it was");

        show(&index, "b", "u280");
        index.delete("c");
        index.delete("never there");
        let changes = index.since(Some(whole.version));
        assert_eq!(names(&changes), (vec!["b"], vec!["c"]));
        assert_eq!(names(&index.since(Some(changes.version))), (vec![], vec![]));
        show(&index, "c", "a10");
        index.listed(&HashSet::from(["c".to_owned()]));
        assert_eq!(names(&index.since(Some(changes.version))), (vec!["c"], vec!["a", "b"]));
    }

    #[test]
    fn who_comes_with_the_version_of_another_process_gets_all_nodes() {
        let (one, other) = (NodeIndex::default(), NodeIndex::default());
        for index in [&one, &other] {
            show(index, "a", "a10");
        }
        let foreign = other.since(None).version;
        assert!(one.since(Some(foreign)).is_whole);
        let own = one.since(None).version;
        assert!(one.since(Some(Version { change: own.change + 1, ..own })).is_whole, "of the future");
    }

    #[test]
    fn who_has_missed_a_removal_that_is_forgotten_gets_all_nodes() {
        let index = NodeIndex::default();
        show(&index, "stays", "a10");
        show(&index, "goes", "a10");
        let before = index.since(None).version;
        index.delete("goes");
        let after = index.since(None).version;
        for _ in 0..MAX_GONE {
            show(&index, "other", "a10");
            index.delete("other");
        }
        let changes = index.since(Some(before));
        assert_eq!((names(&changes), changes.is_whole), ((vec!["stays"], vec![]), true));
        let changes = index.since(Some(after));
        assert!(!changes.is_whole && changes.gone.len() == MAX_GONE, "{changes:?}");
    }

    #[test]
    fn versions_are_read_as_they_are_written() {
        let version = Version { instance: u64::MAX, change: 7 };
        assert_eq!(version.to_string().parse(), Ok(version));
        for text in ["", "7", "-", "x-7", "7-", "7--7"] {
            assert_eq!(text.parse::<Version>(), Err(InvalidVersion), "{text}");
        }
    }
}

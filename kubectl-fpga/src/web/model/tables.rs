//! What a page shows: tables of rows with keys, and a log of their changes that pages read at their own pace.
//!
//! Each change has a version. The log has the last change of each row only, so that a page that reads slowly skips what
//! has been overtaken, and what is kept is bounded by the number of rows.

use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

/// Removed rows that are remembered. A page that has not read of an older one begins anew.
const MAX_GONE: usize = 10_000;

/// A table of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// Where the page's data comes from, by the name of the source.
    Sources,
    /// Nodes with boards, by name.
    Nodes,
    /// Pods with boards, or that wait for them, by `NAMESPACE/NAME`.
    Pods,
    /// Functions as the endpoint picker knows them, by `NAMESPACE/NAME`.
    Functions,
    /// What happened a moment ago, by number.
    Moments,
    /// The extender's last decisions, by `NAMESPACE/NAME` of the pod.
    Decisions,
    /// The slowest requests with a trace, by the trace's id.
    Traces,
}

/// The tables with the log of their changes.
#[derive(Debug, Default)]
pub struct Tables {
    log: BTreeMap<u64, Change>,
    latest: HashMap<(Table, String), u64>,
    gone: VecDeque<u64>,
    /// Version of the last removal that is forgotten.
    forgotten: u64,
    version: u64,
}

#[derive(Debug)]
struct Change {
    table: Table,
    key: String,
    /// The row as JSON; `None` if it was removed.
    row: Option<Arc<str>>,
}

/// How far a page has read the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Position {
    /// The page knows nothing.
    #[default]
    Beginning,
    /// The page knows all changes up to this version.
    After(u64),
}

/// The next changes for a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// JSON: `{"reset":BOOL,"more":BOOL,"rows":[[TABLE,KEY,ROW],…]}`. A removed row is `null`; with `reset` the page
    /// forgets what it knew, and with `more` another batch follows at once.
    pub text: String,
    /// Where the page is then.
    pub position: Position,
    /// Whether more changes follow.
    pub more: bool,
}

impl Tables {
    /// Writes a row. Returns whether anything changed.
    pub fn put(&mut self, table: Table, key: &str, row: &impl Serialize) -> bool {
        // A row consists of texts, numbers and lists, which JSON has.
        let Ok(row) = serde_json::to_string(row) else { return false };
        self.write(table, key, Some(row.into()))
    }

    /// Removes a row.
    pub fn remove(&mut self, table: Table, key: &str) {
        let is_there = self.row(table, key).is_some();
        if is_there && self.write(table, key, None) {
            self.gone.push_back(self.version);
        }
        while self.gone.len() > MAX_GONE {
            let Some(version) = self.gone.pop_front() else { break };
            if let Some(Change { table, key, row: None }) = self.log.get(&version) {
                self.latest.remove(&(*table, key.clone()));
                self.log.remove(&version);
                self.forgotten = version;
            }
        }
    }

    /// Removes all rows of `table` whose keys `keep` does not want.
    pub fn retain(&mut self, table: Table, keep: impl Fn(&str) -> bool) {
        let rows = self.log.values().filter(|change| change.table == table && change.row.is_some());
        let others: Vec<String> = rows.map(|change| change.key.clone()).filter(|key| !keep(key)).collect();
        others.iter().for_each(|key| self.remove(table, key));
    }

    /// The version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The row with a key, as JSON.
    #[must_use]
    pub fn row(&self, table: Table, key: &str) -> Option<&str> {
        let version = self.latest.get(&(table, key.to_owned()))?;
        self.log.get(version)?.row.as_deref()
    }

    /// The changes after `position`, in their order, of about `bytes` bytes; `None` if there are none.
    #[must_use]
    pub fn after(&self, position: Position, bytes: usize) -> Option<Batch> {
        let (reset, from) = match position {
            Position::After(version) if version >= self.forgotten => (false, version),
            Position::After(_) | Position::Beginning => (true, 0),
        };
        let mut text = format!("{{\"reset\":{reset},\"rows\":[");
        let (mut last, mut is_first) = (from, true);
        for (version, change) in self.log.range(from.saturating_add(1)..) {
            if text.len() >= bytes {
                break;
            }
            last = *version;
            if reset && change.row.is_none() {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                text.push(',');
            }
            change.write(&mut text);
        }
        if last == from && !reset {
            return None;
        }
        let more = last < self.version && self.log.range(last.saturating_add(1)..).next().is_some();
        // Writing to a string can't fail.
        let _ = write!(text, "],\"more\":{more}}}");
        Some(Batch { text, position: Position::After(last.max(self.forgotten)), more })
    }

    fn write(&mut self, table: Table, key: &str, row: Option<Arc<str>>) -> bool {
        let id = (table, key.to_owned());
        if let Some(before) = self.latest.get(&id) {
            if self.log.get(before).is_some_and(|change| change.row == row) {
                return false;
            }
            self.log.remove(before);
        }
        self.version += 1;
        self.log.insert(self.version, Change { table, key: key.to_owned(), row });
        self.latest.insert(id, self.version);
        true
    }
}

impl Change {
    fn write(&self, text: &mut String) {
        let quoted = |value: &str| serde_json::Value::from(value).to_string();
        let row = self.row.as_deref().unwrap_or("null");
        // Writing to a string can't fail.
        let _ = write!(text, "[\"{}\",{},{row}]", self.table.name(), quoted(&self.key));
    }
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Functions => "functions",
            Self::Moments => "moments",
            Self::Decisions => "decisions",
            Self::Traces => "traces",
        }
    }
}

#[cfg(test)]
mod tests;

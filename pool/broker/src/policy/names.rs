//! Numbers for names.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of names. All later ones share [`OTHERS`], until the policy is made anew.
const MAX_NAMES: u32 = if cfg!(test) { 1 << 9 } else { 1 << 16 };
/// The number of all names that have none of their own.
pub(super) const OTHERS: u32 = MAX_NAMES;

/// Names and their numbers, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: BTreeMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number of a name, and whether the name is new.
    pub(super) fn number(&mut self, name: &str) -> (u32, bool) {
        if let Some(number) = self.get(name) {
            return (number, false);
        }
        let number = u32::try_from(self.names.len()).unwrap_or(MAX_NAMES);
        if number >= MAX_NAMES {
            return (OTHERS, false);
        }
        let name: Arc<str> = name.into();
        self.numbers.insert(Arc::clone(&name), number);
        self.names.push(name);
        (number, true)
    }

    /// The number of a name that has one.
    pub(super) fn get(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Whether no further name gets a number.
    pub(super) fn are_used_up(&self) -> bool {
        self.names.len() >= MAX_NAMES as usize
    }

    /// The name with a number.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    /// All names with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        (0..).zip(self.names.iter().map(AsRef::as_ref))
    }
}

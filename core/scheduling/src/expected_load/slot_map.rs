//! A map from names to values with generational keys. A decision reads the values of thousands of nodes, and hashing
//! each name would wait for memory each time. A caller keeps an [`ArenaKey`] per name, which leads to the value directly.
//!
//! A key has the index of the value's entry and the generation of the entry. An entry that was reused for another name
//! has another generation, so an outdated key is never mistaken for a valid one.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cached key of one name in one map. Its user must not use it for another name or another map.
#[derive(Debug, Default)]
pub struct ArenaKey(AtomicU64);

/// The map. A free entry has a default value, since values are small.
#[derive(Debug)]
pub(super) struct SlotMap<T> {
    /// Index of each name's entry. Names are those of known nodes, so a fast hash that is not collision-resistant is
    /// enough.
    indexes: HashMap<Arc<str>, usize, RandomState>,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
    generations: u32,
}

#[derive(Debug)]
#[repr(C)]
struct Entry<T> {
    /// 0 for a free entry.
    generation: u32,
    value: T,
}

const FREE: u32 = 0;

impl ArenaKey {
    /// Index and generation.
    fn get(&self) -> (usize, u32) {
        // Both are in one atomic number, so any value read is consistent: it is valid or its generation is outdated.
        let packed = self.0.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let generation = packed as u32;
        (usize::try_from(packed >> u32::BITS).unwrap_or(usize::MAX), generation)
    }

    fn set(&self, index: usize, generation: u32) {
        let Ok(index) = u32::try_from(index) else { return };
        self.0.store(u64::from(index) << u32::BITS | u64::from(generation), Ordering::Relaxed);
    }
}

impl Clone for ArenaKey {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { indexes: HashMap::default(), entries: Vec::new(), free: Vec::new(), generations: FREE }
    }
}

impl<T: Default> SlotMap<T> {
    /// The value of `name` and its index, by which a caller may keep more of the same name.
    pub(super) fn get(&self, name: &str) -> Option<(usize, &T)> {
        let index = *self.indexes.get(name)?;
        self.entries.get(index).map(|entry| (index, &entry.value))
    }

    /// As [`Self::get`], found by its key. An outdated key is updated.
    pub(super) fn at(&self, key: &ArenaKey, name: &str) -> Option<(usize, &T)> {
        let (index, generation) = key.get();
        match self.entries.get(index) {
            Some(entry) if entry.generation == generation && generation != FREE => {
                Some((index, &entry.value))
            }
            _ => self.at_new(key, name),
        }
    }

    #[cold]
    fn at_new(&self, key: &ArenaKey, name: &str) -> Option<(usize, &T)> {
        let index = *self.indexes.get(name)?;
        let entry = self.entries.get(index)?;
        key.set(index, entry.generation);
        Some((index, &entry.value))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<(usize, &mut T)> {
        let index = *self.indexes.get(name)?;
        self.entries.get_mut(index).map(|entry| (index, &mut entry.value))
    }

    /// The value of `name`, a default one if the name is new, with the shared copy of the name and the index.
    pub(super) fn of(&mut self, name: &str) -> (Arc<str>, usize, &mut T) {
        let (name, index) = match self.indexes.get_key_value(name) {
            Some((name, index)) => (Arc::clone(name), *index),
            None => {
                let (name, index): (Arc<str>, usize) = (name.into(), self.free_index());
                self.generations = self.generations.wrapping_add(1).max(FREE + 1);
                self.entries[index].generation = self.generations;
                self.indexes.insert(Arc::clone(&name), index);
                (name, index)
            }
        };
        (name, index, &mut self.entries[index].value)
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(index) = self.indexes.remove(name) else { return };
        self.entries[index] = Entry { generation: FREE, value: T::default() };
        self.free.push(index);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.indexes.iter().filter_map(|(name, index)| Some((&**name, &self.entries.get(*index)?.value)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    fn free_index(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: FREE, value: T::default() });
            self.entries.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_of_an_earlier_generation_is_not_mistaken() {
        let mut values = SlotMap::<u32>::default();
        let (a, b) = (ArenaKey::default(), ArenaKey::default());
        assert_eq!(values.at(&a, "a"), None);
        *values.of("a").2 = 1;
        assert_eq!((values.at(&a, "a"), values.at(&a, "a")), (Some((0, &1)), Some((0, &1))));
        values.remove("a");
        *values.of("b").2 = 2;
        assert_eq!((values.at(&a, "a"), values.at(&b, "b")), (None, Some((0, &2))));
        *values.of("a").2 = 3;
        assert_eq!((values.at(&a, "a"), values.at(&a.clone(), "a")), (Some((1, &3)), Some((1, &3))));
    }

    proptest! {
        #[test]
        fn a_key_finds_the_same_value_as_the_name(changes in proptest::collection::vec((0..4_usize, 0..3_u8), 0..60)) {
            let names = ["a", "b", "c", "d"];
            let keys: Vec<ArenaKey> = names.iter().map(|_| ArenaKey::default()).collect();
            let (mut values, mut model) = (SlotMap::<usize>::default(), HashMap::<&str, usize>::new());
            for (turn, (name, change)) in changes.into_iter().enumerate() {
                match change {
                    0 => values.remove(names[name]),
                    _ => *values.of(names[name]).2 = turn,
                }
                match change {
                    0 => drop(model.remove(names[name])),
                    _ => drop(model.insert(names[name], turn)),
                }
                for (name, key) in names.iter().zip(&keys) {
                    let found = values.at(key, name);
                    prop_assert_eq!(found.map(|(_, value)| value), model.get(name));
                    prop_assert_eq!(values.get(name), found);
                }
            }
            prop_assert_eq!(values.iter().count(), model.len());
        }
    }
}

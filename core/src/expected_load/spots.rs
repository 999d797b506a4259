//! A map from names to values with generational keys. A decision reads the values of thousands of nodes, and hashing
//! each name would wait for memory each time. A caller keeps a [`Spot`] per name, which leads to the value directly.
//!
//! A key has the index of the value's entry and the generation of the entry. An entry that was reused for another name
//! has another generation, so an outdated key is never mistaken for a valid one.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cached key of one name in one map. Its user must not use it for another name or another map.
#[derive(Debug, Default)]
pub struct Spot(AtomicU64);

/// The map. A free entry has a default value, since values are small.
#[derive(Debug)]
pub(super) struct Spots<T> {
    /// Index of each name's entry. Names are those of known nodes, so a fast hash that is not collision-resistant is
    /// enough.
    places: HashMap<Arc<str>, usize, RandomState>,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    tenants: u32,
}

#[derive(Debug)]
#[repr(C)]
struct Slot<T> {
    /// 0 for a free entry.
    tenant: u32,
    value: T,
}

const NOBODY: u32 = 0;

impl Spot {
    /// Index and generation.
    fn get(&self) -> (usize, u32) {
        // Both are in one atomic number, so any value read is consistent: it is valid or its generation is outdated.
        let packed = self.0.load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let tenant = packed as u32;
        (usize::try_from(packed >> u32::BITS).unwrap_or(usize::MAX), tenant)
    }

    fn set(&self, place: usize, tenant: u32) {
        let Ok(place) = u32::try_from(place) else { return };
        self.0.store(u64::from(place) << u32::BITS | u64::from(tenant), Ordering::Relaxed);
    }
}

impl Clone for Spot {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl<T> Default for Spots<T> {
    fn default() -> Self {
        Self { places: HashMap::default(), slots: Vec::new(), free: Vec::new(), tenants: NOBODY }
    }
}

impl<T: Default> Spots<T> {
    /// The value of `name`.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        let place = self.places.get(name)?;
        self.slots.get(*place).map(|slot| &slot.value)
    }

    /// The value of `name`, found by its key. An outdated key is updated.
    pub(super) fn at(&self, spot: &Spot, name: &str) -> Option<&T> {
        let (place, tenant) = spot.get();
        let there = self.slots.get(place).filter(|slot| slot.tenant == tenant && tenant != NOBODY);
        if let Some(slot) = there {
            return Some(&slot.value);
        }
        let place = *self.places.get(name)?;
        let slot = self.slots.get(place)?;
        spot.set(place, slot.tenant);
        Some(&slot.value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        let place = self.places.get(name)?;
        self.slots.get_mut(*place).map(|slot| &mut slot.value)
    }

    /// The value of `name`, a default one if the name is new, and the shared copy of the name.
    pub(super) fn of(&mut self, name: &str) -> (Arc<str>, &mut T) {
        let (name, place) = match self.places.get_key_value(name) {
            Some((name, place)) => (Arc::clone(name), *place),
            None => {
                let (name, place): (Arc<str>, usize) = (name.into(), self.free_place());
                self.tenants = self.tenants.wrapping_add(1).max(NOBODY + 1);
                self.slots[place].tenant = self.tenants;
                self.places.insert(Arc::clone(&name), place);
                (name, place)
            }
        };
        (name, &mut self.slots[place].value)
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name) else { return };
        self.slots[place] = Slot { tenant: NOBODY, value: T::default() };
        self.free.push(place);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.places.iter().filter_map(|(name, place)| Some((&**name, &self.slots.get(*place)?.value)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn free_place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { tenant: NOBODY, value: T::default() });
            self.slots.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_that_has_another_tenant_is_not_mistaken() {
        let mut values = Spots::<u32>::default();
        let (a, b) = (Spot::default(), Spot::default());
        assert_eq!(values.at(&a, "a"), None);
        *values.of("a").1 = 1;
        assert_eq!((values.at(&a, "a"), values.at(&a, "a")), (Some(&1), Some(&1)));
        values.remove("a");
        *values.of("b").1 = 2;
        assert_eq!((values.at(&a, "a"), values.at(&b, "b")), (None, Some(&2)));
        *values.of("a").1 = 3;
        assert_eq!((values.at(&a, "a"), values.at(&a.clone(), "a")), (Some(&3), Some(&3)));
    }

    proptest! {
        #[test]
        fn a_spot_finds_what_the_name_finds(changes in proptest::collection::vec((0..4_usize, 0..3_u8), 0..60)) {
            let names = ["a", "b", "c", "d"];
            let spots: Vec<Spot> = names.iter().map(|_| Spot::default()).collect();
            let (mut values, mut model) = (Spots::<usize>::default(), HashMap::<&str, usize>::new());
            for (turn, (name, change)) in changes.into_iter().enumerate() {
                match change {
                    0 => values.remove(names[name]),
                    _ => *values.of(names[name]).1 = turn,
                }
                match change {
                    0 => drop(model.remove(names[name])),
                    _ => drop(model.insert(names[name], turn)),
                }
                for (name, spot) in names.iter().zip(&spots) {
                    prop_assert_eq!(values.at(spot, name), model.get(name));
                    prop_assert_eq!(values.get(name), model.get(name));
                }
            }
            prop_assert_eq!(values.iter().count(), model.len());
        }
    }
}

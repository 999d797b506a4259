//! What the policy's own books and the pool must say of each other, whatever has happened.

use super::{Holder, Policy, Stage};
use fpga_cluster::pool::{SlotNumber, TenantId};
use fpga_cluster::shared_pool::Slot;
use std::collections::{BTreeMap, BTreeSet};

impl Policy {
    /// Panics if the books contradict each other.
    pub fn check(&self) {
        for (place, slot) in &self.slots {
            if let Holder::Group { group, .. } | Holder::GroupWithoutJob(group) = slot.holder {
                assert!(self.groups.id(group).is_some(), "{place:?} is one of a closed group");
            }
        }
        for (key, group) in self.groups.groups.iter().map(|(key, group)| (*key, group)) {
            let without_job: BTreeSet<Slot> = self.places_of(|holder| holder == Holder::GroupWithoutJob(key));
            assert_eq!(group.spare, without_job, "slots without a job of {key:?}");
            let held =
                self.places_of(|holder| matches!(holder, Holder::Group { group, .. } if group == key)).len();
            assert_eq!(group.held as usize, held, "slots with a job of {key:?}");
            let waiting = self.jobs.iter().filter(|(_, job)| job.stage == Stage::Group(key));
            assert!(group.waiting.iter().eq(waiting.map(|(job, _)| job)), "waiting jobs of {key:?}");
            assert!(group.waiting.is_empty() || without_job.is_empty(), "{key:?} has slots and waits");
            assert!(held > 0 || !group.waiting.is_empty(), "{key:?} is open without a job");
        }
        for (key, size, jobs) in self.bundles.all() {
            assert!(!jobs.is_empty() && jobs.len() <= size as usize, "{key:?} has {} jobs", jobs.len());
            let is_complete = jobs.len() == size as usize;
            for job in jobs {
                let stage = self.jobs.get(job).map(|job| job.stage);
                let is_so = if is_complete {
                    matches!(stage, Some(Stage::Pool(_)))
                } else {
                    stage == Some(Stage::Bundle(key))
                };
                assert!(is_so, "{job:?} of {key:?}: {stage:?}");
            }
        }
        for job in self.jobs.values() {
            if let Stage::Group(key) = job.stage {
                assert!(self.groups.id(key).is_some(), "a job waits in a closed group");
            }
        }
        let mut of_groups: BTreeMap<TenantId, usize> = BTreeMap::new();
        for job in self.jobs.values() {
            let waits = matches!(job.stage, Stage::Group(_) | Stage::NoClass { .. });
            *of_groups.entry(job.tenant).or_default() += usize::from(waits);
        }
        for (number, name) in self.tenants.iter() {
            let counted = self.pool.pool().group_jobs(TenantId(number));
            let waiting = of_groups.get(&TenantId(number)).copied().unwrap_or(0);
            assert_eq!(counted, waiting, "waiting jobs of groups of {name}");
        }
        let (mut slots, mut jobs, mut groups) = (0, 0, 0);
        for (_, count) in self.pool.pool().classes() {
            (slots, jobs, groups) = (slots + count.slots, jobs + count.jobs, groups + count.groups);
        }
        let is_of_group = |holder| matches!(holder, Holder::Group { .. } | Holder::GroupWithoutJob(_));
        let is_of_job = |holder| matches!(holder, Holder::Job { .. });
        let books = (self.slots.len(), self.places_of(is_of_job).len(), self.places_of(is_of_group).len());
        assert_eq!((slots as usize, jobs as usize, groups as usize), books, "slots, of jobs, of groups");
        let places: BTreeSet<Slot> = self.places.values().copied().collect();
        assert!(self.slots.keys().all(|place| places.contains(place)), "a slot has lost its place");
        let taken = places.iter().map(|place| place.number);
        let numbers: BTreeSet<SlotNumber> = taken.chain(self.free_numbers.iter().copied()).collect();
        assert_eq!(numbers.len(), self.place_numbers(), "a number has two places");
    }

    /// Number of places that slots have, or have had at the same time.
    pub fn place_numbers(&self) -> usize {
        self.places.len() + self.free_numbers.len()
    }

    /// Number of bitstreams that have numbers of their own.
    pub fn named_bitstreams(&self) -> usize {
        self.accelerators.iter().count()
    }

    fn places_of(&self, is_meant: impl Fn(Holder) -> bool) -> BTreeSet<Slot> {
        let meant = self.slots.iter().filter(|(_, slot)| is_meant(slot.holder));
        meant.map(|(place, _)| *place).collect()
    }
}

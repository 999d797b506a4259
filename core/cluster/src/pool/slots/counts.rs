//! Numbers of slots.

use super::{Class, Slots};
use crate::pool::{ClassCount, ClassSet, SlotClass};

impl Slots {
    pub(in super::super) fn count(&self, class: SlotClass) -> ClassCount {
        self.classes.get(&class).map_or_else(ClassCount::default, |class| class.count)
    }

    pub(in super::super) fn classes(&self) -> impl Iterator<Item = (SlotClass, ClassCount)> {
        self.classes.iter().map(|(class, of)| (*class, of.count))
    }

    pub(in super::super) fn idle(&self) -> usize {
        self.classes.values().map(|class| class.idle.len()).sum()
    }

    /// Whether the pool has a slot of these classes.
    pub(in super::super) fn any(&self, classes: ClassSet) -> bool {
        self.classes.iter().any(|(class, of)| of.count.slots > 0 && classes.contains(*class))
    }

    /// Number of idle slots of these classes that jobs may take.
    pub(in super::super) fn idle_for_jobs(&self, classes: ClassSet) -> usize {
        let idle = |of: &Class| of.idle.len().min(of.most_jobs.saturating_sub(of.count.jobs) as usize);
        self.of(classes).map(idle).sum()
    }

    /// Number of slots of these classes that jobs may have at the same time.
    pub(in super::super) fn most_for_jobs(&self, classes: ClassSet) -> usize {
        self.of(classes).map(|of| of.most_jobs.min(of.count.slots) as usize).sum()
    }

    /// Number of slots of these classes, and of those that jobs hold.
    pub(in super::super) fn of_all_and_jobs(&self, classes: ClassSet) -> (usize, usize) {
        let counts = |(all, jobs): (usize, usize), of: &Class| {
            (all + of.count.slots as usize, jobs + of.count.jobs as usize)
        };
        self.of(classes).fold((0, 0), counts)
    }

    fn of(&self, classes: ClassSet) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(move |(class, _)| classes.contains(**class)).map(|(_, of)| of)
    }
}

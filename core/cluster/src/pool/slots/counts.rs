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

    /// Number of slots of these classes.
    pub(in super::super) fn all(&self, classes: ClassSet) -> usize {
        self.of(classes).map(|of| of.count.slots as usize).sum()
    }

    /// Number of slots of these classes that jobs may have beside groups, and of those that jobs hold.
    pub(in super::super) fn most_and_held(&self, classes: ClassSet) -> (usize, usize) {
        let counts = |(most, held): (usize, usize), of: &Class| {
            let may_have = of.most_jobs_that_wait.min(of.count.slots);
            (most + may_have as usize, held + of.count.jobs as usize)
        };
        self.of(classes).fold((0, 0), counts)
    }

    /// Sets the maximum number of slots of a class that jobs may hold if jobs wait.
    pub(in super::super) fn set_most_jobs_that_wait(&mut self, class: SlotClass, most: u32) {
        self.classes.entry(class).or_default().most_jobs_that_wait = most;
    }

    fn of(&self, classes: ClassSet) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(move |(class, _)| classes.contains(**class)).map(|(_, of)| of)
    }
}

//! The commands that wait aside, each with the number of things that hold it back: an event's end finds those that waited for
//! it, and nobody else is looked at.

use super::{EventId, Fence, Item, QueueId, QueueOrder};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A command's place in the order of the flushes.
type Place = u64;

/// The commands that wait aside.
#[derive(Debug)]
pub(super) struct Deferred<C> {
    items: BTreeMap<Place, Waiting<C>>,
    next: Place,
    /// Who waits for an event that is open.
    by_event: HashMap<EventId, Vec<Place>>,
    /// Only queues that have something here.
    queues: HashMap<QueueId, Line>,
    /// How often a command was looked at again.
    #[cfg(test)]
    looked_at: usize,
}

#[derive(Debug)]
struct Waiting<C> {
    item: Item<C>,
    /// How many events and places hold it back.
    held_by: usize,
    /// The places that it holds back by its queue's order.
    holds: Vec<Place>,
}

/// The commands of one queue that wait aside.
#[derive(Debug, Default)]
struct Line {
    /// What a command that comes after all before it has to come after: it then stands for these.
    ends: BTreeSet<Place>,
    /// The last barrier.
    barrier: Option<Place>,
}

/// The places that nothing holds back any more.
#[derive(Debug, Default)]
pub(super) struct Free(BTreeSet<Place>);

impl<C> Item<C> {
    /// Whether it comes after all before it in its queue.
    pub(super) fn comes_after_all(&self) -> bool {
        self.order == QueueOrder::InOrder || (self.fence != Fence::None && self.wait.is_empty())
    }
}

impl<C> Default for Deferred<C> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            next: 0,
            by_event: HashMap::new(),
            queues: HashMap::new(),
            #[cfg(test)]
            looked_at: 0,
        }
    }
}

impl<C> Deferred<C> {
    /// Puts a new command aside if it waits for one of these events, or something before it in its queue is here; else
    /// gives it back.
    pub(super) fn defer(&mut self, item: Item<C>, open: &[EventId]) -> Option<Item<C>> {
        let line = self.queues.get(&item.queue);
        let is_held = line.is_some_and(|line| item.comes_after_all() || line.barrier.is_some());
        if open.is_empty() && !is_held {
            return Some(item);
        }
        let place = self.next;
        self.next += 1;
        let line = self.queues.entry(item.queue).or_default();
        let before: Vec<Place> = if item.comes_after_all() {
            std::mem::take(&mut line.ends).into_iter().collect()
        } else {
            line.barrier.into_iter().collect()
        };
        line.ends.insert(place);
        if item.fence == Fence::Barrier {
            line.barrier = Some(place);
        }
        for event in open {
            self.by_event.entry(*event).or_default().push(place);
        }
        for before in &before {
            if let Some(before) = self.items.get_mut(before) {
                before.holds.push(place);
            }
        }
        let held_by = open.len() + before.len();
        self.items.insert(place, Waiting { item, held_by, holds: Vec::new() });
        None
    }

    /// The event is no longer open.
    pub(super) fn settled(&mut self, event: EventId, free: &mut Free) {
        for place in self.by_event.remove(&event).unwrap_or_default() {
            self.let_go(place, free);
        }
    }

    /// Takes out the first command that is free, which counts as settled with that.
    pub(super) fn take(&mut self, free: &mut Free) -> Option<Item<C>> {
        let place = free.0.pop_first()?;
        let Waiting { item, holds, .. } = self.items.remove(&place)?;
        if let Some(line) = self.queues.get_mut(&item.queue) {
            line.ends.remove(&place);
            line.barrier = line.barrier.filter(|barrier| *barrier != place);
            if line.ends.is_empty() {
                self.queues.remove(&item.queue);
            }
        }
        for later in holds {
            self.let_go(later, free);
        }
        self.settled(item.event, free);
        Some(item)
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    #[cfg(test)]
    pub(super) fn looked_at(&self) -> usize {
        self.looked_at
    }

    fn let_go(&mut self, place: Place, free: &mut Free) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        if let Some(waiting) = self.items.get_mut(&place) {
            waiting.held_by -= 1;
            if waiting.held_by == 0 {
                free.0.insert(place);
            }
        }
    }
}

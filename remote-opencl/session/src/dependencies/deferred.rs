//! The deferred commands. Each one counts the events and commands that it waits for, so the end of an event visits
//! only the commands that waited for it.

use super::{EventId, Fence, Item, QueueId, QueueOrder};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The position of a command in the order of the flushes.
type Position = u64;

/// The deferred commands.
#[derive(Debug)]
pub(super) struct Deferred<C> {
    items: BTreeMap<Position, Waiting<C>>,
    next: Position,
    /// The commands that wait for an open event.
    by_event: HashMap<EventId, Vec<Position>>,
    /// The queues that have deferred commands.
    queues: HashMap<QueueId, Line>,
    /// Number of visits to a deferred command.
    #[cfg(test)]
    looked_at: usize,
}

#[derive(Debug)]
struct Waiting<C> {
    item: Item<C>,
    /// Number of events and commands that this command waits for.
    held_by: usize,
    /// The commands that wait for this one because of the queue's order.
    holds: Vec<Position>,
}

/// The deferred commands of one queue.
#[derive(Debug, Default)]
struct Line {
    /// The commands that a command which comes after all others must wait for; it then replaces them in this set.
    ends: BTreeSet<Position>,
    /// The last barrier.
    barrier: Option<Position>,
}

/// The commands that no longer wait.
#[derive(Debug, Default)]
pub(super) struct Free(BTreeSet<Position>);

impl<C> Item<C> {
    /// Whether the command comes after all commands before it in its queue.
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
    /// Defers a new command if it waits for one of the `open` events or for a deferred command of its queue.
    /// Otherwise returns it.
    pub(super) fn defer(&mut self, item: Item<C>, open: &[EventId]) -> Option<Item<C>> {
        let line = self.queues.get(&item.queue);
        let is_held = line.is_some_and(|line| item.comes_after_all() || line.barrier.is_some());
        if open.is_empty() && !is_held {
            return Some(item);
        }
        let place = self.next;
        self.next += 1;
        let line = self.queues.entry(item.queue).or_default();
        let before: Vec<Position> = if item.comes_after_all() {
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

    /// Records that an event is no longer open.
    pub(super) fn settled(&mut self, event: EventId, free: &mut Free) {
        for place in self.by_event.remove(&event).unwrap_or_default() {
            self.let_go(place, free);
        }
    }

    /// Removes and returns the first free command, and settles its event.
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

    fn let_go(&mut self, place: Position, free: &mut Free) {
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

//! What the pending commands of a session mean for commands that take bytes of host memory: which of them give bytes to
//! that memory, and which wait for a user event, so that the program may still write to it.

use crate::base::sync::lock;
use crate::objects::late::LateBytes;
use crate::objects::queue::Queue;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The queue of user events: none.
const NO_QUEUE: u64 = 0;

/// The pending commands that matter, by the ids of their events.
#[derive(Debug, Default)]
pub(crate) struct HostOrder {
    /// Number of entries, so that sessions without any take no lock.
    entries: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Commands that give bytes to host memory: their queue, and where.
    givers: HashMap<u64, (u64, Range<usize>)>,
    /// User events that are not set, and commands that wait for one: their queue.
    held: HashMap<u64, u64>,
    /// Bytes that wait for commands that give some to the same memory.
    waiting: Vec<LateBytes>,
}

impl HostOrder {
    /// Notes a user event of the program.
    pub(super) fn begin_user_event(&self, event: u64) {
        self.change(|inner| inner.held.insert(event, NO_QUEUE));
    }

    /// Notes a command that is enqueued in `queue`, waits for the events `wait`, and gives bytes to `gives`.
    pub(super) fn begin(&self, event: u64, queue: &Queue, wait: &[u64], gives: Option<Range<usize>>) {
        let is_held = self.is_held(queue, wait);
        if gives.is_none() && !is_held {
            return;
        }
        self.change(|inner| {
            if is_held {
                inner.held.insert(event, queue.id());
            }
            if let Some(addresses) = gives {
                inner.givers.insert(event, (queue.id(), addresses));
            }
        });
    }

    /// Whether a command that is enqueued now and waits for these events waits for a user event. In an in-order queue it
    /// also waits for all commands before it; without any events, so does a marker or a barrier.
    pub(super) fn is_held(&self, queue: &Queue, wait: &[u64]) -> bool {
        if self.is_empty() {
            return false;
        }
        let inner = lock(&self.inner);
        let waits_for_queue = queue.is_in_order() || wait.is_empty();
        wait.iter().any(|event| inner.held.contains_key(event))
            || waits_for_queue && inner.held.values().any(|held| *held == queue.id())
    }

    /// The pending commands that give bytes to these addresses, and their queues.
    pub(super) fn givers_to(&self, addresses: &Range<usize>) -> Vec<(u64, u64)> {
        if self.is_empty() {
            return Vec::new();
        }
        let inner = lock(&self.inner);
        let overlap = |given: &Range<usize>| given.start < addresses.end && addresses.start < given.end;
        let overlapping = inner.givers.iter().filter(|(_, (_, given))| overlap(given));
        overlapping.map(|(event, (queue, _))| (*event, *queue)).collect()
    }

    /// Returns the bytes if nothing gives some to the same memory any more; else keeps them until then.
    pub(super) fn until_given(&self, late: LateBytes) -> Option<LateBytes> {
        let mut ready = Some(late);
        self.change(|inner| inner.waiting.extend(ready.take_if(|late| !inner.is_given(late))));
        ready
    }

    /// Notes that a command or a user event has ended.
    pub(super) fn ended(&self, event: u64) {
        if self.is_empty() {
            return;
        }
        let mut ready = Vec::new();
        self.change(|inner| {
            inner.held.remove(&event);
            if inner.givers.remove(&event).is_some() && !inner.waiting.is_empty() {
                let (given, waiting) =
                    std::mem::take(&mut inner.waiting).into_iter().partition(|late| inner.is_given(late));
                (ready, inner.waiting) = (given, waiting);
            }
        });
        for late in ready {
            late.take();
        }
    }

    fn is_empty(&self) -> bool {
        self.entries.load(Ordering::Acquire) == 0
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) {
        let mut inner = lock(&self.inner);
        change(&mut inner);
        self.entries.store(inner.held.len() + inner.givers.len() + inner.waiting.len(), Ordering::Release);
    }
}

impl Inner {
    fn is_given(&self, late: &LateBytes) -> bool {
        !late.givers().iter().any(|giver| self.givers.contains_key(giver))
    }
}

//! The pending commands of a session that decide when a later command may take bytes of host memory:
//! - commands that give bytes to host memory;
//! - commands that wait for a user event. Until the program sets that event, it may still write to host memory.

use crate::base::sync::lock;
use std::collections::HashMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The queue of user events: none.
const NO_QUEUE: u64 = 0;

/// Bytes that a command takes when commands before it have given theirs to the same memory.
pub(crate) trait WaitingBytes: Debug + Send {
    /// The events of the commands that must have given their bytes.
    fn givers(&self) -> &[u64];
    /// Takes the bytes, and lets the command run.
    fn take(self: Box<Self>);
}

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
    waiting: Vec<Box<dyn WaitingBytes>>,
}

impl HostOrder {
    /// Notes a user event of the program.
    pub(crate) fn begin_user_event(&self, event: u64) {
        self.change(|inner| inner.held.insert(event, NO_QUEUE));
    }

    /// Notes a command of `queue`, which waits as in [`Self::is_held`], and gives bytes to `gives`.
    pub(crate) fn begin(
        &self,
        event: u64,
        queue: u64,
        (wait, behind): (&[u64], Option<u64>),
        gives: Option<Range<usize>>,
    ) {
        let is_held = self.is_held(wait, behind);
        if gives.is_none() && !is_held {
            return;
        }
        self.change(|inner| {
            if is_held {
                inner.held.insert(event, queue);
            }
            if let Some(addresses) = gives {
                inner.givers.insert(event, (queue, addresses));
            }
        });
    }

    /// Whether a command waits for a user event: one that waits for the events `wait`, and for the earlier commands of the
    /// queue `behind`, if there is one.
    pub(crate) fn is_held(&self, wait: &[u64], behind: Option<u64>) -> bool {
        if self.is_empty() {
            return false;
        }
        let inner = lock(&self.inner);
        wait.iter().any(|event| inner.held.contains_key(event))
            || behind.is_some_and(|queue| inner.held.values().any(|held| *held == queue))
    }

    /// The pending commands that give bytes to these addresses, and their queues.
    pub(crate) fn givers_to(&self, addresses: &Range<usize>) -> Vec<(u64, u64)> {
        if self.is_empty() {
            return Vec::new();
        }
        let inner = lock(&self.inner);
        let overlap = |given: &Range<usize>| given.start < addresses.end && addresses.start < given.end;
        let overlapping = inner.givers.iter().filter(|(_, (_, given))| overlap(given));
        overlapping.map(|(event, (queue, _))| (*event, *queue)).collect()
    }

    /// Takes the bytes now, or as soon as nothing gives some to the same memory any more.
    pub(crate) fn take_when_given(&self, late: Box<dyn WaitingBytes>) {
        let mut ready = Some(late);
        self.change(|inner| inner.waiting.extend(ready.take_if(|late| !inner.is_given(&**late))));
        if let Some(ready) = ready {
            ready.take();
        }
    }

    /// Notes that a command or a user event has ended.
    pub(crate) fn ended(&self, event: u64) {
        if self.is_empty() {
            return;
        }
        let mut ready = Vec::new();
        self.change(|inner| {
            inner.held.remove(&event);
            if inner.givers.remove(&event).is_some() && !inner.waiting.is_empty() {
                let (given, waiting) =
                    std::mem::take(&mut inner.waiting).into_iter().partition(|late| inner.is_given(&**late));
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
    fn is_given(&self, late: &dyn WaitingBytes) -> bool {
        !late.givers().iter().any(|giver| self.givers.contains_key(giver))
    }
}

//! How many messages wait for a client.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the messages that were queued for the client and that the client has taken.
#[derive(Debug, Default)]
pub struct Flow {
    put: AtomicU64,
    taken: AtomicU64,
}

/// The state of a [`Flow`] at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    waiting: u64,
    taken: u64,
}

impl Flow {
    /// Counts a message that was queued.
    pub fn put(&self) {
        self.put.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that left the queue.
    pub fn taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// The state now.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let taken = self.taken.load(Ordering::Relaxed);
        Progress { waiting: self.put.load(Ordering::Relaxed).saturating_sub(taken), taken }
    }
}

impl Add for Progress {
    type Output = Self;

    /// The messages of both flows together.
    fn add(self, other: Self) -> Self {
        Self { waiting: self.waiting + other.waiting, taken: self.taken + other.taken }
    }
}

impl Progress {
    /// Whether messages waited at `self` and wait at `now`, and none was taken in between.
    #[must_use]
    pub fn is_stalled_at(self, now: Self) -> bool {
        self.waiting > 0 && now.waiting > 0 && self.taken == now.taken
    }
}

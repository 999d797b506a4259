//! The memory of a ring: words that both sides can change, and their layout.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An atomic word of 8 bytes.
pub trait Word {
    /// Loads the word, as [`AtomicU64::load`] does.
    fn load(&self, order: Ordering) -> u64;
    /// Stores `value`, as [`AtomicU64::store`] does.
    fn store(&self, value: u64, order: Ordering);
    /// Adds `more`, and wraps around.
    fn add(&self, more: u64);
    /// A fence with [`Ordering::SeqCst`].
    fn fence();
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn add(&self, more: u64) {
        self.fetch_add(more, Ordering::Relaxed);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// A fixed number of words that stay accessible as long as the value lives.
pub trait Memory {
    /// Type of the words.
    type Word: Word;
    /// All words.
    fn words(&self) -> &[Self::Word];
}

impl<M: Memory> Memory for Arc<M> {
    type Word = M::Word;

    fn words(&self) -> &[Self::Word] {
        M::words(self)
    }
}

/// One of the two streams of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the manager.
    ToManager,
    /// From the manager to the client.
    ToClient,
}

/// Positions of a ring's parts: for each direction a header of whole cache lines, followed by the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    capacity: usize,
}

/// A reason why memory can't hold a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The number of words for each direction is not a power of two, or too small or too large.
    #[error("a ring of {0} words for each direction can't be: it takes a power of two, 4 or more")]
    Capacity(usize),
    /// The memory is too small.
    #[error("a ring takes {needed} words, and there are {there}")]
    Words {
        /// Number of words that the layout needs.
        needed: usize,
        /// Number of words of the memory.
        there: usize,
    },
}

/// Words of a cache line. Fields that different sides write often lie in different cache lines.
const LINE: usize = 8;

/// Positions in the header of a direction, one cache line each, but for the reader's two flags.
pub(crate) const HEAD: usize = 0;
pub(crate) const TAIL: usize = LINE;
pub(crate) const READER_WAITS: usize = 2 * LINE;
pub(crate) const READER_DOZES: usize = READER_WAITS + 1;
pub(crate) const WRITER_WAITS: usize = 3 * LINE;
const HEADER: usize = 4 * LINE;

impl Layout {
    /// A layout with `capacity` words of data in each direction.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`] unless `capacity` is a power of two from 4 to 2^24.
    pub const fn new(capacity: usize) -> Result<Self, LayoutError> {
        if capacity >= 4 && capacity.is_power_of_two() && capacity <= 1 << 24 {
            Ok(Self { capacity })
        } else {
            Err(LayoutError::Capacity(capacity))
        }
    }

    /// Number of words of data in each direction.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// Number of words of memory that the ring takes.
    #[must_use]
    pub const fn words(self) -> usize {
        2 * (HEADER + self.capacity)
    }

    /// The word on whose lower half the reader of a direction sleeps when it dozes. A [`crate::Consumer`] or
    /// [`crate::Producer`] has found that the memory has all words of the layout.
    pub fn reader_flag<M: Memory>(self, memory: &M, direction: Direction) -> &M::Word {
        &memory.words()[self.header(direction) + READER_DOZES]
    }

    pub(crate) fn check(self, there: usize) -> Result<(), LayoutError> {
        let needed = self.words();
        if there >= needed { Ok(()) } else { Err(LayoutError::Words { needed, there }) }
    }

    /// Index of the first word of a direction's header.
    pub(crate) const fn header(self, direction: Direction) -> usize {
        match direction {
            Direction::ToManager => 0,
            Direction::ToClient => HEADER + self.capacity,
        }
    }

    /// Index of the first word of a direction's data.
    pub(crate) const fn data(self, direction: Direction) -> usize {
        self.header(direction) + HEADER
    }
}

//! What a ring is made of: words that both sides can change, and where each of them is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An atomic word of 8 bytes.
pub trait Word {
    /// As of [`AtomicU64`].
    fn load(&self, order: Ordering) -> u64;
    /// As of [`AtomicU64`].
    fn store(&self, value: u64, order: Ordering);
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

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Words that are there, and stay, as long as the value lives; always as many.
pub trait Memory {
    /// Their kind.
    type Word: Word;
    /// All of them.
    fn words(&self) -> &[Self::Word];
}

impl<M: Memory> Memory for Arc<M> {
    type Word = M::Word;

    fn words(&self) -> &[Self::Word] {
        M::words(self)
    }
}

/// Which of the two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Written by the client.
    ToManager,
    /// Written by the manager.
    ToClient,
}

/// Where everything lies: per direction a header of cache lines, and then the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    capacity: usize,
}

/// Why memory can't hold a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A stream's words must be a power of two.
    #[error("a ring of {0} words for each direction can't be: it takes a power of two, 4 or more")]
    Capacity(usize),
    /// It is too small.
    #[error("a ring takes {needed} words, and there are {there}")]
    Words {
        /// What it takes.
        needed: usize,
        /// What there is.
        there: usize,
    },
}

/// Words of a cache line: what one side writes often shares none with what the other writes.
const LINE: usize = 8;

/// Positions in the header of a direction, a cache line each.
pub(crate) const HEAD: usize = 0;
pub(crate) const TAIL: usize = LINE;
pub(crate) const READER_WAITS: usize = 2 * LINE;
pub(crate) const WRITER_WAITS: usize = 3 * LINE;
const HEADER: usize = 4 * LINE;

impl Layout {
    /// A ring with so many words of data in each direction.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`].
    pub const fn new(capacity: usize) -> Result<Self, LayoutError> {
        if capacity >= 4 && capacity.is_power_of_two() && capacity <= 1 << 24 {
            Ok(Self { capacity })
        } else {
            Err(LayoutError::Capacity(capacity))
        }
    }

    /// Words of data in each direction.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity
    }

    /// Words of memory that it takes.
    #[must_use]
    pub const fn words(self) -> usize {
        2 * (HEADER + self.capacity)
    }

    pub(crate) fn check(self, there: usize) -> Result<(), LayoutError> {
        let needed = self.words();
        if there >= needed { Ok(()) } else { Err(LayoutError::Words { needed, there }) }
    }

    /// Where the header of a direction begins.
    pub(crate) const fn header(self, direction: Direction) -> usize {
        match direction {
            Direction::ToManager => 0,
            Direction::ToClient => HEADER + self.capacity,
        }
    }

    /// Where its data begins.
    pub(crate) const fn data(self, direction: Direction) -> usize {
        self.header(direction) + HEADER
    }
}

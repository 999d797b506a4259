//! One direction of a ring: the side that writes and the side that reads.
//!
//! Positions count words and wrap only at 2^64. A reader that is about to sleep first sets its waiting flag and
//! then checks for words once more; the writer first publishes words and then checks the flag. A fence between the
//! two steps on each side guarantees that at least one side sees the other's store, so a reader never sleeps while
//! there are words, and a reader that is awake is rarely rung for. Waiting for room works the same way with the
//! roles exchanged.
//!
//! A reader sleeps at its bell, a descriptor that it can watch beside others, or it *dozes*: for a short time it
//! sleeps on a flag of its own (a futex), which takes fewer system calls. Several threads of the reading side may
//! doze, and take each other's messages. Each doze writes a ticket of its own into the flag, so that a thread that is
//! late to fall asleep does not. While the flag is set the writer wakes all of them and does not ring.

use crate::words::{
    Direction, HEAD, Layout, LayoutError, Memory, READER_DOZES, READER_WAITS, TAIL, WRITER_WAITS, Word,
};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WORD: usize = size_of::<u64>();

/// The other side published an impossible position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the command ring says that it is where it can't be")]
pub struct Broken;

/// Whether the other side waits and has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the other side may sleep"]
pub enum Bell {
    /// The other side waits at its bell: ring it.
    Ring,
    /// Threads of the other side doze: wake all that sleep on its flag.
    Wake,
    /// The other side is awake.
    Silent,
}

/// The result of a check before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// There is something to do; this side is not marked as waiting.
    Ready,
    /// There is nothing to do; this side is marked as waiting, so the other side rings its bell.
    Waiting,
}

/// The result of a check before dozing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doze {
    /// There is something to do.
    Ready,
    /// There is nothing to do; the calling thread may sleep on the flag as long as the flag has this value.
    While(u32),
}

/// The side that writes.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    place: Place,
    head: u64,
}

/// The side that reads.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    place: Place,
    tail: u64,
    ticket: u32,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    header: usize,
    data: usize,
    capacity: usize,
}

impl Place {
    fn new(layout: Layout, direction: Direction, there: usize) -> Result<Self, LayoutError> {
        layout.check(there)?;
        Ok(Self {
            header: layout.header(direction),
            data: layout.data(direction),
            capacity: layout.capacity(),
        })
    }

    /// The one or two ranges of words that hold the `count` words from `position` on.
    fn runs(self, position: u64, count: usize) -> [std::ops::Range<usize>; 2] {
        // The remainder is less than the capacity, a usize.
        #[expect(clippy::cast_possible_truncation, reason = "the capacity is a power of two")]
        let at = position as usize & (self.capacity - 1);
        let first = count.min(self.capacity - at);
        [self.data + at..self.data + at + first, self.data..self.data + (count - first)]
    }

    /// The distance from `behind` to `ahead` in words; [`Broken`] if it exceeds the capacity.
    fn between(self, behind: u64, ahead: u64) -> Result<usize, Broken> {
        match usize::try_from(ahead.wrapping_sub(behind)) {
            Ok(words) if words <= self.capacity => Ok(words),
            _ => Err(Broken),
        }
    }
}

/// Clears a flag if it is set. Returns whether it was set. Only this side acts on the flag: if the other side woke by
/// itself and waits again, it is woken once too often.
fn clear<W: Word>(flag: &W) -> bool {
    let set = flag.load(Relaxed) != 0;
    if set {
        flag.store(0, Relaxed);
    }
    set
}

impl<M: Memory> Producer<M> {
    /// A producer for a ring whose words are all zero. To be called once for each ring and direction.
    ///
    /// # Errors
    /// [`LayoutError::Words`] if `memory` is too small for `layout`.
    pub fn new(memory: M, layout: Layout, direction: Direction) -> Result<Self, LayoutError> {
        let place = Place::new(layout, direction, memory.words().len())?;
        Ok(Self { memory, place, head: 0 })
    }

    fn word(&self, index: usize) -> &M::Word {
        &self.memory.words()[self.place.header + index]
    }

    /// Number of free bytes.
    ///
    /// # Errors
    /// [`Broken`] if the reader's position is impossible.
    pub fn room(&self) -> Result<usize, Broken> {
        let used = self.place.between(self.word(TAIL).load(Acquire), self.head)?;
        Ok((self.place.capacity - used) * WORD)
    }

    /// Writes as many whole words from the beginning of `bytes` as there is room for. A length as [`crate::frame`]
    /// makes it is a multiple of a word; a remainder of less than a word is not written. Returns the number of
    /// bytes written, and whether to ring.
    ///
    /// # Errors
    /// [`Broken`] if the reader's position is impossible.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(usize, Bell), Broken> {
        let words = self.room()?.min(bytes.len()) / WORD;
        if words == 0 {
            return Ok((0, Bell::Silent));
        }
        let (chunks, _) = bytes.as_chunks::<WORD>();
        let mut values = chunks.iter();
        for run in self.place.runs(self.head, words) {
            for (word, value) in self.memory.words()[run].iter().zip(&mut values) {
                word.store(u64::from_le_bytes(*value), Relaxed);
            }
        }
        self.head = self.head.wrapping_add(words as u64);
        self.word(HEAD).store(self.head, Release);
        Ok((words * WORD, self.bell()))
    }

    /// How to wake the reader, after words were published.
    fn bell(&self) -> Bell {
        M::Word::fence();
        if clear(self.word(READER_DOZES)) {
            Bell::Wake
        } else if clear(self.word(READER_WAITS)) {
            Bell::Ring
        } else {
            Bell::Silent
        }
    }

    /// Marks this side as waiting for room, unless there is room.
    ///
    /// # Errors
    /// [`Broken`] if the reader's position is impossible.
    pub fn wait_for_room(&mut self) -> Result<Readiness, Broken> {
        self.word(WRITER_WAITS).store(1, Relaxed);
        M::Word::fence();
        if self.room()? == 0 {
            return Ok(Readiness::Waiting);
        }
        self.word(WRITER_WAITS).store(0, Relaxed);
        Ok(Readiness::Ready)
    }
}

impl<M: Memory> Consumer<M> {
    /// A consumer for a ring whose words are all zero. To be called once for each ring and direction.
    ///
    /// # Errors
    /// [`LayoutError::Words`] if `memory` is too small for `layout`.
    pub fn new(memory: M, layout: Layout, direction: Direction) -> Result<Self, LayoutError> {
        let place = Place::new(layout, direction, memory.words().len())?;
        Ok(Self { memory, place, tail: 0, ticket: 1 })
    }

    fn word(&self, index: usize) -> &M::Word {
        &self.memory.words()[self.place.header + index]
    }

    fn there(&self) -> Result<usize, Broken> {
        self.place.between(self.tail, self.word(HEAD).load(Acquire))
    }

    /// Whether there is nothing to read. Cheap enough to be polled.
    ///
    /// # Errors
    /// [`Broken`] if the writer's position is impossible.
    pub fn is_empty(&self) -> Result<bool, Broken> {
        Ok(self.there()? == 0)
    }

    /// Appends all available words to `into`. Returns whether to ring, since the writer may wait for the freed room.
    ///
    /// # Errors
    /// [`Broken`] if the writer's position is impossible.
    pub fn read(&mut self, into: &mut impl bytes::BufMut) -> Result<Bell, Broken> {
        let words = self.there()?;
        if words == 0 {
            return Ok(Bell::Silent);
        }
        for run in self.place.runs(self.tail, words) {
            for word in &self.memory.words()[run] {
                into.put_u64_le(word.load(Relaxed));
            }
        }
        self.tail = self.tail.wrapping_add(words as u64);
        // `Release` orders the loads above before this store: the writer overwrites the words only after it has
        // seen it.
        self.word(TAIL).store(self.tail, Release);
        M::Word::fence();
        Ok(if clear(self.word(WRITER_WAITS)) { Bell::Ring } else { Bell::Silent })
    }

    /// Marks this side as waiting for words, unless there are some.
    ///
    /// # Errors
    /// [`Broken`] if the writer's position is impossible.
    pub fn wait(&mut self) -> Result<Readiness, Broken> {
        self.word(READER_WAITS).store(1, Relaxed);
        M::Word::fence();
        if self.there()? == 0 {
            return Ok(Readiness::Waiting);
        }
        self.stay_awake();
        Ok(Readiness::Ready)
    }

    /// Marks this side as dozing. If there are no words, the calling thread then sleeps on the flag
    /// ([`Layout::reader_flag`]) as long as the flag has the returned value. The mark stays until
    /// [`Self::end_doze`], or until the writer or [`crate::Dozers::wake`] has woken all threads.
    ///
    /// # Errors
    /// [`Broken`] if the writer's position is impossible.
    pub fn doze(&mut self) -> Result<Doze, Broken> {
        let ticket = self.ticket;
        self.ticket = ticket.checked_add(1).unwrap_or(1);
        self.word(READER_DOZES).store(u64::from(ticket), Relaxed);
        M::Word::fence();
        Ok(if self.there()? == 0 { Doze::While(ticket) } else { Doze::Ready })
    }

    /// Clears the mark of [`Self::doze`]. To be called when no thread dozes any more. Returns whether there are words,
    /// for which the writer may have woken nobody.
    ///
    /// # Errors
    /// [`Broken`] if the writer's position is impossible.
    pub fn end_doze(&mut self) -> Result<Readiness, Broken> {
        self.word(READER_DOZES).store(0, Relaxed);
        M::Word::fence();
        Ok(if self.there()? == 0 { Readiness::Waiting } else { Readiness::Ready })
    }

    /// Clears the mark of [`Self::wait`]: this side polls, or will wait again.
    pub fn stay_awake(&mut self) {
        self.word(READER_WAITS).store(0, Relaxed);
    }
}

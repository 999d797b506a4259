//! One direction of a ring: the side that writes and the side that reads.
//!
//! Positions count words and never wrap. The reader says that it waits and looks once more; the writer publishes and then
//! looks whether somebody waits; a fence between each side's two steps has one of them see the other. So nobody sleeps
//! over words that are there, and nobody is woken who is awake. Waiting for room is the same the other way round.

use crate::words::{Direction, HEAD, Layout, LayoutError, Memory, READER_WAITS, TAIL, WRITER_WAITS, Word};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WORD: usize = size_of::<u64>();

/// The other side's position can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the command ring says that it is where it can't be")]
pub struct Broken;

/// Whether the other side waits and has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the other side may sleep"]
pub enum Bell {
    /// It does: ring for it.
    Ring,
    /// It doesn't.
    Silent,
}

/// Whether there is anything to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// There is; nobody waits.
    Ready,
    /// There isn't; the other side knows that this one waits for its bell.
    Waiting,
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

    /// The two runs of words that `count` of them from `position` on are.
    fn runs(self, position: u64, count: usize) -> [std::ops::Range<usize>; 2] {
        // The remainder is less than the capacity, a usize.
        #[expect(clippy::cast_possible_truncation, reason = "the capacity is a power of two")]
        let at = position as usize & (self.capacity - 1);
        let first = count.min(self.capacity - at);
        [self.data + at..self.data + at + first, self.data..self.data + (count - first)]
    }

    /// How far `ahead` is in front of `behind`, if that can be.
    fn between(self, behind: u64, ahead: u64) -> Result<usize, Broken> {
        match usize::try_from(ahead.wrapping_sub(behind)) {
            Ok(words) if words <= self.capacity => Ok(words),
            _ => Err(Broken),
        }
    }
}

/// Whether the side that waits at `flag` has to be woken, after something was published for it.
fn bell<W: Word>(flag: &W) -> Bell {
    W::fence();
    if flag.load(Relaxed) == 0 {
        return Bell::Silent;
    }
    // Nobody else rings meanwhile. If the other side awoke by itself and waits again, it is woken once too often.
    flag.store(0, Relaxed);
    Bell::Ring
}

impl<M: Memory> Producer<M> {
    /// Of a ring of zeroes, once.
    ///
    /// # Errors
    /// [`LayoutError::Words`].
    pub fn new(memory: M, layout: Layout, direction: Direction) -> Result<Self, LayoutError> {
        let place = Place::new(layout, direction, memory.words().len())?;
        Ok(Self { memory, place, head: 0 })
    }

    fn word(&self, index: usize) -> &M::Word {
        &self.memory.words()[self.place.header + index]
    }

    /// How many bytes there is room for.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn room(&self) -> Result<usize, Broken> {
        let used = self.place.between(self.word(TAIL).load(Acquire), self.head)?;
        Ok((self.place.capacity - used) * WORD)
    }

    /// Writes as much from the beginning of `bytes` as there is room for: whole words, as [`crate::frame`] makes them (a
    /// rest that is none stays). How many bytes that were, and whether to ring.
    ///
    /// # Errors
    /// [`Broken`].
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
        Ok((words * WORD, bell(self.word(READER_WAITS))))
    }

    /// Says that this side waits for room, and looks once more.
    ///
    /// # Errors
    /// [`Broken`].
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
    /// Of a ring of zeroes, once.
    ///
    /// # Errors
    /// [`LayoutError::Words`].
    pub fn new(memory: M, layout: Layout, direction: Direction) -> Result<Self, LayoutError> {
        let place = Place::new(layout, direction, memory.words().len())?;
        Ok(Self { memory, place, tail: 0 })
    }

    fn word(&self, index: usize) -> &M::Word {
        &self.memory.words()[self.place.header + index]
    }

    fn there(&self) -> Result<usize, Broken> {
        self.place.between(self.tail, self.word(HEAD).load(Acquire))
    }

    /// Whether there is nothing to read: cheap, for who looks again and again.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn is_empty(&self) -> Result<bool, Broken> {
        Ok(self.there()? == 0)
    }

    /// Copies everything that is there to the end of `into`; whether to ring, since there is room now.
    ///
    /// # Errors
    /// [`Broken`].
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
        // What was loaded stays loaded: the writer writes over it only after it has seen this.
        self.word(TAIL).store(self.tail, Release);
        Ok(bell(self.word(WRITER_WAITS)))
    }

    /// Says that this side waits for something to read, and looks once more.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn wait(&mut self) -> Result<Readiness, Broken> {
        self.word(READER_WAITS).store(1, Relaxed);
        M::Word::fence();
        if self.there()? == 0 {
            return Ok(Readiness::Waiting);
        }
        self.stay_awake();
        Ok(Readiness::Ready)
    }

    /// Says that this side doesn't wait: it will look by itself, or wait again.
    pub fn stay_awake(&mut self) {
        self.word(READER_WAITS).store(0, Relaxed);
    }
}

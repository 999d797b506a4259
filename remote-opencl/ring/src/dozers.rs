//! The threads of one side that doze, and how other threads of the same side wake them.
//!
//! A message of the other side wakes all of them. What a thread waits for may also come another way: another thread
//! took its message, or set its event. So a thread takes a [`Look`] before it looks for what it waits for, and does
//! not fall asleep if [`Dozers::wake`] was called since.

use crate::words::Word;
use std::sync::atomic::Ordering::Relaxed;

/// The threads of one side that doze, in memory of their own process.
#[derive(Debug, Default)]
pub struct Dozers<W> {
    /// Number of calls of [`Self::wake`].
    woken: W,
    /// Number of threads that sleep or are about to.
    asleep: W,
}

/// A moment before a thread looked for what it waits for.
#[derive(Debug, Clone, Copy)]
pub struct Look(u64);

impl<W: Word> Dozers<W> {
    /// The moment now. To be called before the thread looks for what it waits for.
    pub fn look(&self) -> Look {
        let look = Look(self.woken.load(Relaxed));
        // What happens before a later wake is seen by the look that follows, or the number differs.
        W::fence();
        look
    }

    /// Calls `sleep`, which sleeps as long as the flag has the value that [`crate::Doze::While`] told, unless
    /// [`Self::wake`] was called since `look`. To be called after [`crate::Consumer::doze`].
    pub fn sleep(&self, look: Look, sleep: impl FnOnce()) {
        self.asleep.add(1);
        W::fence();
        if self.woken.load(Relaxed) == look.0 {
            sleep();
        }
        self.asleep.add(u64::MAX);
    }

    /// Wakes the threads that doze, by `wake_all`, after something happened for which one of them may wait.
    pub fn wake(&self, flag: &W, wake_all: impl FnOnce()) {
        W::fence();
        self.woken.add(1);
        W::fence();
        if self.asleep.load(Relaxed) != 0 {
            // A thread that is late to fall asleep finds another value than its ticket.
            flag.store(0, Relaxed);
            wake_all();
        }
    }
}

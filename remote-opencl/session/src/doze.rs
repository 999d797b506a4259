//! The short sleep of a session's thread on its command ring, and the ends of commands that it learns of afterwards.
//!
//! A client whose command has ended soon sends the next one. So the thread first *dozes*: it sleeps on a word of the
//! ring for a short time, and needs no other system call. A vendor's thread that has told the client of an end leaves
//! the end here and does not wake the session for it: two threads less want a processor at once. The session takes
//! the ends when it wakes, and it never dozes for longer than [`LONGEST`].

use crate::dependencies::EventId;
use crate::segments::RingMemory;
use fpga_net::futex;
use fpga_ring::{Broken, Consumer, Direction, Dozers, Layout, Look};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longest doze. Timers, the end of the stream and other descriptors of the thread wait for its end.
pub const LONGEST: Duration = Duration::from_millis(1);

/// What a session's thread and the threads that wake it share.
#[derive(Debug, Default)]
pub struct Doze {
    ring: OnceLock<(Arc<RingMemory>, Layout)>,
    dozers: Dozers<AtomicU64>,
    /// Whether the thread dozes. The ring's flag does not tell: the client can change it.
    dozes: AtomicBool,
    ends: Mutex<Vec<(EventId, i32)>>,
}

/// Whether the session takes the end of a command without being woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The session's thread dozes, and takes the end when the thread wakes.
    Yes,
    /// The session's thread has to be woken.
    No,
}

impl Doze {
    /// Lets the thread doze on this ring.
    pub fn on(&self, memory: Arc<RingMemory>, layout: Layout) {
        // A session has one ring.
        let _ = self.ring.set((memory, layout));
    }

    /// Whether the thread has a ring to doze on.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.ring.get().is_some()
    }

    /// The moment now, before the thread looks for inputs.
    #[must_use]
    pub fn look(&self) -> Look {
        self.dozers.look()
    }

    /// Sleeps until a message is in the ring, until [`Self::wake`] is called, or for [`LONGEST`]. Returns at once if
    /// one of them happened since `look`.
    ///
    /// # Errors
    /// [`Broken`] if the client's position is impossible.
    pub fn sleep(&self, look: Look, consumer: &mut Consumer<Arc<RingMemory>>) -> Result<(), Broken> {
        let Some((memory, layout)) = self.ring.get() else { return Ok(()) };
        if let fpga_ring::Doze::While(ticket) = consumer.doze()? {
            self.dozes.store(true, Ordering::SeqCst);
            let flag = layout.reader_flag(memory, Direction::ToManager);
            self.dozers.sleep(look, || futex::sleep(flag, ticket, LONGEST));
            self.dozes.store(false, Ordering::SeqCst);
            // Before the ends are taken: who left an end before this fence saw the thread doze, or wakes it.
            fence(Ordering::SeqCst);
        }
        // While the thread is awake, the client neither wakes it nor rings. The thread looks at the ring next.
        let _ = consumer.end_doze()?;
        consumer.stay_awake();
        Ok(())
    }

    /// Wakes the thread, if it dozes. To be called after an input was sent to it.
    pub fn wake(&self) {
        if let Some((memory, layout)) = self.ring.get() {
            let flag = layout.reader_flag(memory, Direction::ToManager);
            self.dozers.wake(flag, || futex::wake_all(flag));
        }
    }

    /// Leaves the end of a command, of which the client has been told, with this status.
    #[must_use]
    pub fn leave(&self, event: EventId, status: i32) -> Left {
        self.ends.lock().push((event, status));
        fence(Ordering::SeqCst);
        if self.dozes.load(Ordering::SeqCst) { Left::Yes } else { Left::No }
    }

    /// The ends that were left, in their order.
    #[must_use]
    pub fn take(&self) -> Vec<(EventId, i32)> {
        std::mem::take(&mut *self.ends.lock())
    }
}

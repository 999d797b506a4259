//! A lock for the vendor's runtime. A board that is reconfigured as a whole (T-2) takes the runtime away: the
//! reconfiguration waits until all users have left, and admits no others until it is done.
//!
//! The board may be shared with other processes. Then the manager lets this one leave before another one loads
//! ([`fpga_board::whole_board`]), and a thread of the lock releases the vendor's objects, and makes them again when somebody
//! wants them. For boards that are reconfigured in part the lock does nothing.

use crate::confine::Confinement;
use crate::metrics::Metrics;
use fpga_board::whole_board::{LoadTicket, LoadWork, Loaded, Presence, Round, Word, Work};
use fpga_core::bitstream::Digest;
use fpga_vendor::{self as vendor, Saved, Switched};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use tokio::sync::watch;

/// The lock of a board. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct QuiesceLock(Option<Arc<Inner>>);

/// Tells the manager something.
pub type Say = Box<dyn Fn(Word) + Send + Sync>;

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// Incremented each time the board opens.
    opened: watch::Sender<u64>,
    confinement: Confinement,
    metrics: Metrics,
    /// The way to the manager of the processes that share the board.
    say: Option<Say>,
}

#[derive(Debug, Default)]
struct State {
    presence: Presence,
    saved: Option<Saved>,
}

/// The openings of a board since a moment.
#[derive(Debug)]
pub struct Openings(Option<watch::Receiver<u64>>);

/// A call, a build or a task that uses the vendor; dropping the value ends the use.
#[derive(Debug)]
pub struct InUse(Option<Arc<Inner>>);

/// A reconfiguration that waits or runs; no user is admitted until it is dropped.
#[derive(Debug)]
pub struct Quiesced {
    inner: Arc<Inner>,
    ticket: Option<LoadTicket>,
    loaded: Loaded,
}

impl QuiesceLock {
    /// A board that is reconfigured as a whole, by this process alone. Programs are then built again under `confinement`.
    #[must_use]
    pub fn whole(confinement: Confinement, metrics: Metrics) -> Self {
        Self(Some(Inner::new(confinement, metrics, None)))
    }

    /// A board that is reconfigured as a whole, and that other processes use, too.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn shared(confinement: Confinement, metrics: Metrics, say: Say) -> io::Result<Self> {
        let inner = Inner::new(confinement, metrics, Some(say));
        let of_thread = inner.clone();
        thread::Builder::new().name("board".to_owned()).spawn(move || of_thread.keep())?;
        Ok(Self(Some(inner)))
    }

    /// Admits a user of the vendor; `None` while a reconfiguration waits or runs.
    #[must_use]
    pub fn enter(&self) -> Option<InUse> {
        let Some(inner) = &self.0 else { return Some(InUse(None)) };
        if inner.state.lock().presence.enter() {
            return Some(InUse(Some(inner.clone())));
        }
        // The thread may have to make the vendor's objects again.
        inner.changed.notify_all();
        None
    }

    /// Whether the board is reconfigured as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.is_some()
    }

    /// Whether it is of use to try to enter.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.is_open())
    }

    /// The openings of the board from now on. A caller takes them before it tries to enter, so that it misses none.
    #[must_use]
    pub fn openings(&self) -> Openings {
        Openings(self.0.as_ref().map(|inner| inner.opened.subscribe()))
    }

    /// Admits no users from now on; `None` if the board is reconfigured in part.
    #[must_use]
    pub fn close(&self) -> Option<Quiesced> {
        let inner = self.0.as_ref()?;
        let ticket = Some(inner.state.lock().presence.load_begins());
        Some(Quiesced { inner: inner.clone(), ticket, loaded: Loaded::No })
    }

    /// The manager wants this process to leave the board.
    pub fn leave(&self, round: Round) {
        let Some(inner) = &self.0 else { return };
        inner.state.lock().presence.leave(round);
        inner.changed.notify_all();
    }

    /// The manager lets this process use the board again, with programs of these images.
    pub fn may_return(&self, images: Vec<Digest>) {
        let Some(inner) = &self.0 else { return };
        inner.state.lock().presence.may_return(images);
        inner.opens();
    }
}

impl Inner {
    fn new(confinement: Confinement, metrics: Metrics, say: Option<Say>) -> Arc<Self> {
        vendor::remember_objects();
        let (changed, opened) = (Condvar::new(), watch::Sender::new(0));
        Arc::new(Self { state: Mutex::default(), changed, opened, confinement, metrics, say })
    }

    fn is_open(&self) -> bool {
        self.state.lock().presence.is_open()
    }

    fn opens(&self) {
        self.changed.notify_all();
        self.opened.send_modify(|count| *count += 1);
    }

    fn say(&self, word: Word) {
        if let Some(say) = &self.say {
            say(word);
        }
    }

    /// Does for the sake of other processes what is to be done, for as long as the process lives.
    fn keep(&self) {
        loop {
            let work = {
                let mut state = self.state.lock();
                loop {
                    match state.presence.work() {
                        Some(work) => break work,
                        None => self.changed.wait(&mut state),
                    }
                }
            };
            match work {
                Work::Release => self.release(),
                Work::Restore(images) => {
                    self.restore(&images);
                    self.opens();
                }
                Work::Say(word) => self.say(word),
            }
        }
    }

    fn release(&self) {
        let saved = vendor::release_all();
        if saved.outlived > 0 {
            tracing::debug!(saved.outlived, "The vendor itself still holds contexts that were released");
        }
        self.metrics.contexts_destroyed.inc_by(saved.contexts);
        let mut state = self.state.lock();
        state.saved = Some(saved);
        state.presence.released();
        drop(state);
        self.changed.notify_all();
    }

    fn restore(&self, images: &[Digest]) -> Switched {
        let saved = self.state.lock().saved.take();
        // Without a record nothing was released.
        let switched = saved.map(|saved| {
            vendor::restore_all(saved, images, &|build| {
                // Landlock restricts a thread for good, so each build gets its own.
                thread::scope(|scope| {
                    let confined = || match self.confinement.enter() {
                        Ok(()) => build(),
                        Err(error) => tracing::error!(%error, "A build can't be confined: refused"),
                    };
                    let built = thread::Builder::new().name("build".to_owned()).spawn_scoped(scope, confined);
                    if let Ok(thread) = built {
                        // If the thread panics, nothing was built.
                        let _ = thread.join();
                    }
                });
            })
        });
        self.state.lock().presence.restored();
        self.changed.notify_all();
        switched.unwrap_or_default()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuiesceLock").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Openings {
    /// Waits for the next opening. A board that is reconfigured in part is always open, and has none.
    pub async fn next(&mut self) {
        match &mut self.0 {
            // The channel can't be closed: the lock holds the sender.
            Some(opened) => drop(opened.changed().await),
            None => std::future::pending().await,
        }
    }
}

impl InUse {
    /// Another use. It is admitted because `self` has been.
    #[must_use]
    pub fn another(&self) -> Self {
        if let Some(inner) = &self.0 {
            inner.state.lock().presence.enter_by_another();
        }
        Self(self.0.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.state.lock().presence.exit();
            inner.changed.notify_all();
        }
    }
}

impl Quiesced {
    /// Waits until all users have left, then destroys all vendor contexts and makes them again with these
    /// images on the board, on the calling thread.
    #[must_use]
    pub fn reconfigure(mut self, images: &[Digest]) -> Switched {
        let inner = self.inner.clone();
        loop {
            let work = {
                let mut state = inner.state.lock();
                loop {
                    match state.presence.loads_work() {
                        Some(work) => break work,
                        None => inner.changed.wait(&mut state),
                    }
                }
            };
            match work {
                LoadWork::Release => inner.release(),
                LoadWork::Restore => {
                    let switched = inner.restore(images);
                    if switched.failed_loads == 0 {
                        self.loaded = Loaded::Yes;
                    }
                    return switched;
                }
            }
        }
    }
}

impl Drop for Quiesced {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let word = self.inner.state.lock().presence.load_ends(ticket, self.loaded);
        if let Some(word) = word {
            self.inner.say(word);
        }
        self.inner.opens();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_that_is_loaded_in_part_is_always_open() {
        let board = QuiesceLock::default();
        assert!(board.close().is_none() && board.is_open() && board.enter().is_some());
    }

    #[test]
    fn nobody_comes_in_before_a_reconfiguration_that_waits_for_those_inside() {
        let board = QuiesceLock::whole(Confinement::off(), Metrics::default());
        let inside = board.enter().unwrap();
        let closed = board.close().unwrap();
        assert!(board.enter().is_none());
        let more = inside.another();
        let waits = thread::spawn(move || closed.reconfigure(&[]));
        drop(inside);
        assert!(!board.is_open() && board.enter().is_none(), "one is still inside");
        drop(more);
        // The test has no vendor objects to make again.
        assert_eq!(waits.join().unwrap(), Switched::default());
        assert!(board.enter().is_some());
    }

    #[tokio::test]
    async fn an_opening_between_a_refusal_and_the_wait_for_it_is_not_missed() {
        let board = QuiesceLock::whole(Confinement::off(), Metrics::default());
        let closed = board.close().unwrap();
        let mut openings = board.openings();
        assert!(board.enter().is_none());
        drop(closed);
        assert!(board.is_open());
        openings.next().await;
    }
}

//! A lock for the vendor's runtime. A board that is reconfigured as a whole (T-2) takes the runtime away: the
//! reconfiguration waits until all users have left, and admits no others until it is done.
//!
//! For boards that are reconfigured in part the lock does nothing.

use crate::confine::Confinement;
use fpga_core::bitstream::Digest;
use fpga_vendor::{self as vendor, Switched};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use tokio::sync::watch;

/// The lock of a board. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct QuiesceLock(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    drained: Condvar,
    /// Incremented each time the board opens.
    opened: watch::Sender<u64>,
    confinement: Confinement,
}

#[derive(Debug, Default)]
struct State {
    /// Number of calls, builds and tasks that use the vendor.
    users: usize,
    /// Number of reconfigurations that wait or run.
    closed: usize,
    working: bool,
}

/// A call, a build or a task that uses the vendor; dropping the value ends the use.
#[derive(Debug)]
pub struct InUse(Option<Arc<Inner>>);

/// A reconfiguration that waits or runs; no user is admitted until it is dropped.
#[derive(Debug)]
pub struct Quiesced(Arc<Inner>);

impl QuiesceLock {
    /// A board that is reconfigured as a whole. Programs are then built again under `confinement`.
    #[must_use]
    pub fn whole(confinement: Confinement) -> Self {
        vendor::remember_objects();
        let state = Mutex::default();
        let (drained, opened) = (Condvar::new(), watch::Sender::new(0));
        Self(Some(Arc::new(Inner { state, drained, opened, confinement })))
    }

    /// Admits a user of the vendor; `None` while a reconfiguration waits or runs.
    #[must_use]
    pub fn enter(&self) -> Option<InUse> {
        let Some(inner) = &self.0 else { return Some(InUse(None)) };
        let mut state = inner.state.lock();
        if state.closed > 0 {
            return None;
        }
        state.users += 1;
        drop(state);
        Some(InUse(Some(inner.clone())))
    }

    /// Whether the board is reconfigured as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.0.is_some()
    }

    /// Whether users are admitted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.state.lock().closed == 0)
    }

    /// Waits until users are admitted.
    pub async fn opened(&self) {
        let Some(inner) = &self.0 else { return };
        let mut opened = inner.opened.subscribe();
        while inner.state.lock().closed > 0 {
            // The channel can't be closed: this value holds the sender.
            let _ = opened.changed().await;
        }
    }

    /// Admits no users from now on; `None` if the board is reconfigured in part.
    #[must_use]
    pub fn close(&self) -> Option<Quiesced> {
        let inner = self.0.as_ref()?;
        inner.state.lock().closed += 1;
        Some(Quiesced(inner.clone()))
    }
}

impl InUse {
    /// Another use. It is admitted because `self` has been.
    #[must_use]
    pub fn another(&self) -> Self {
        if let Some(inner) = &self.0 {
            inner.state.lock().users += 1;
        }
        Self(self.0.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.state.lock().users -= 1;
            inner.drained.notify_all();
        }
    }
}

impl Quiesced {
    /// Waits until all users have left, then destroys all vendor contexts and makes them again with these
    /// images on the board, on the calling thread.
    #[must_use]
    pub fn reconfigure(self, images: &[Digest]) -> Switched {
        let inner = &self.0;
        let mut state = inner.state.lock();
        while state.users > 0 || state.working {
            inner.drained.wait(&mut state);
        }
        state.working = true;
        drop(state);
        let switched = vendor::switch(images, &|build| {
            // Landlock restricts a thread for good, so each build gets its own.
            std::thread::scope(|scope| {
                let built =
                    std::thread::Builder::new().name("build".to_owned()).spawn_scoped(scope, || match inner
                        .confinement
                        .enter()
                    {
                        Ok(()) => build(),
                        Err(error) => tracing::error!(%error, "A build can't be confined: refused"),
                    });
                if let Ok(thread) = built {
                    // If the thread panics, nothing was built.
                    let _ = thread.join();
                }
            });
        });
        inner.state.lock().working = false;
        switched
    }
}

impl Drop for Quiesced {
    fn drop(&mut self) {
        self.0.state.lock().closed -= 1;
        self.0.drained.notify_all();
        self.0.opened.send_modify(|count| *count += 1);
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
        let inner = Inner {
            state: Mutex::default(),
            drained: Condvar::new(),
            opened: watch::Sender::new(0),
            confinement: Confinement::off(),
        };
        let board = QuiesceLock(Some(Arc::new(inner)));
        let inside = board.enter().unwrap();
        let closed = board.close().unwrap();
        assert!(board.enter().is_none());
        let more = inside.another();
        let waits = std::thread::spawn(move || closed.reconfigure(&[]));
        drop(inside);
        assert!(!board.is_open() && board.enter().is_none(), "one is still inside");
        drop(more);
        // The test has no vendor objects to make again.
        assert_eq!(waits.join().unwrap(), Switched::default());
        assert!(board.enter().is_some());
    }
}

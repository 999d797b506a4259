//! SIGTERM and SIGINT as a [`Shutdown`]: the first drains, the second ends the process, and so does a deadline where the
//! drain does not come to its end.

use crate::shutdown::Shutdown;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long after the drain the process may take to end in order: sessions that have outlasted it, last reports.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Signals so close to the first are the same wish: timeout(1) sends one to its child and one to the group.
const SAME_WISH: Duration = Duration::from_millis(300);

/// What is dropped however the process ends, in this order: socket files, folders.
#[derive(Clone, Default)]
pub struct AtEnd(Arc<Mutex<Vec<Box<dyn Send>>>>);

impl AtEnd {
    /// Drops `guard` at the end, after those that are there.
    pub fn add(&self, guard: impl Send + 'static) {
        self.lock().push(Box::new(guard));
    }

    /// The end.
    pub fn drop_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handles the signals from now on in a thread of its own. Call it before other threads are started: they take over
/// that the signals are blocked.
///
/// # Errors
/// The system's.
pub fn handle(shutdown: Shutdown, at_end: AtEnd, drain: Duration) -> io::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block()?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(first) = signals.wait() else { return };
        let came = Instant::now();
        info!(signal = %first, sessions = shutdown.sessions(), "Draining");
        shutdown.drain();
        let of_deadline = at_end.clone();
        let deadline = thread::Builder::new().name("drain-deadline".to_owned()).spawn(move || {
            thread::sleep(drain.saturating_add(END_TIMEOUT));
            warn!("The drain does not come to its end; ending without it");
            end(&of_deadline, 128 + first as i32);
        });
        if deadline.is_err() {
            end(&at_end, 128 + first as i32);
        }
        while let Ok(second) = signals.wait() {
            if came.elapsed() < SAME_WISH {
                continue;
            }
            warn!(signal = %second, "Second signal; ending at once");
            end(&at_end, 128 + second as i32);
        }
    })?;
    Ok(())
}

/// Ends the process with this status, whatever runs.
pub fn end(at_end: &AtEnd, status: i32) -> ! {
    at_end.drop_all();
    // No destructors: a vendor's runtime may wait in them for kernels that don't end.
    // SAFETY: `_exit` takes any status and touches no memory of ours.
    unsafe { libc::_exit(status) }
}

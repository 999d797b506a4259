//! Signals that end the manager. The first SIGTERM, SIGINT or SIGHUP starts a drain, the second one ends the
//! process. A deadline ends the process too if the drain does not end.

use fpga_session::shutdown::Shutdown;
use nix::sys::signal::{SigSet, Signal};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Time after the drain in which the process must end in order: sessions that have outlasted the drain, and last
/// reports.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after the first signal in which further signals are ignored: timeout(1) sends one to its child and one to
/// the group.
const SAME_WISH: Duration = Duration::from_millis(300);

/// Guards that are dropped however the process ends, in the order in which they were added, such as those of socket
/// files and folders.
#[derive(Clone, Default)]
pub struct AtEnd(Arc<Mutex<Vec<Box<dyn Send>>>>);

impl AtEnd {
    /// Adds a guard.
    pub fn add(&self, guard: impl Send + 'static) {
        self.lock().push(Box::new(guard));
    }

    /// Drops all guards.
    pub fn drop_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Send>>> {
        self.0.lock()
    }
}

/// Handles the signals from now on, on a thread of its own. Call it before other threads start, since they inherit
/// that the signals are blocked.
///
/// # Errors
/// The system's error.
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

/// Ends the process with this status, even if tasks run.
pub fn end(at_end: &AtEnd, status: i32) -> ! {
    at_end.drop_all();
    // No destructors run: a vendor's runtime may wait in them for kernels that never end.
    // SAFETY: `_exit` takes any status and touches no memory of this program.
    unsafe { libc::_exit(status) }
}

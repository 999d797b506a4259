//! SIGTERM and SIGINT as a [`Shutdown`]: the first drains, the second or the deadline ends the process.

use crate::listen::SocketFile;
use crate::shutdown::Shutdown;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Signals so close to the first are the same wish: timeout(1) sends one to its child and one to the group.
const SAME_WISH: Duration = Duration::from_millis(300);

/// The socket files, to be removed however the process ends.
pub type SocketFiles = Arc<Mutex<Vec<SocketFile>>>;

/// Handles the signals from now on in a thread of its own. Call it before other threads are started: they take over
/// that the signals are blocked.
///
/// # Errors
/// The system's.
pub fn handle(shutdown: Shutdown, files: SocketFiles, drain: Duration) -> io::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block()?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(first) = signals.wait() else { return };
        let came = Instant::now();
        info!(signal = %first, "Draining");
        shutdown.request();
        let of_deadline = Arc::clone(&files);
        let deadline = thread::Builder::new().name("drain-deadline".to_owned()).spawn(move || {
            thread::sleep(drain);
            warn!(?drain, "Sessions did not end in time; ending without them");
            end(&of_deadline, first);
        });
        if deadline.is_err() {
            end(&files, first);
        }
        while let Ok(second) = signals.wait() {
            if came.elapsed() < SAME_WISH {
                continue;
            }
            warn!(signal = %second, "Second signal; ending at once");
            end(&files, second);
        }
    })?;
    Ok(())
}

fn end(files: &SocketFiles, signal: Signal) -> ! {
    files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    // No destructors: a vendor's runtime may wait in them for kernels that don't end.
    // SAFETY: `_exit` takes any status and touches no memory of ours.
    unsafe { libc::_exit(128 + signal as i32) }
}

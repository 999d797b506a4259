//! Threads that never handle a signal of the application.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::thread::{Builder, JoinHandle, scope};

/// Starts a thread that has all signals blocked from its first instruction on.
///
/// # Errors
/// The system has no thread left, or refuses the mask.
pub fn spawn_with_signals_blocked(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    with_signals_blocked(|| Builder::new().name(name.to_owned()).spawn(body))
}

/// Runs `body` in a thread as of [`spawn_with_signals_blocked`], with a stack of the usual size, and waits for it. The
/// calling thread may have a small stack.
///
/// # Errors
/// The system has no thread left or refuses the mask, or `body` panicked.
pub fn run_with_signals_blocked<T: Send>(name: &str, body: impl FnOnce() -> T + Send) -> io::Result<T> {
    scope(|scope| {
        let thread = with_signals_blocked(|| Builder::new().name(name.to_owned()).spawn_scoped(scope, body))?;
        thread.join().map_err(|_| io::Error::other("the thread panicked"))
    })
}

/// Calls `spawn` so that a thread that it starts inherits the mask. If that set the mask itself, a signal could come before.
fn with_signals_blocked<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = spawn();
    before.thread_set_mask()?;
    thread
}

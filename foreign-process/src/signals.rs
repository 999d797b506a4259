//! Threads that never handle a signal of the application.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that has all signals blocked from its first instruction on.
///
/// # Errors
/// The system has no thread left, or refuses the mask.
pub fn spawn_with_signals_blocked(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // The thread inherits this mask. If it set the mask itself, a signal could come before.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    before.thread_set_mask()?;
    thread
}

//! Threads that no signal of the application is ever delivered to.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with all signals blocked from its first instruction on.
pub(crate) fn spawn_with_signals_blocked(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // A thread inherits the mask of its creator; set afterwards there would be a window.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = Builder::new().name(name.to_owned()).spawn(body);
    before.thread_set_mask()?;
    thread
}

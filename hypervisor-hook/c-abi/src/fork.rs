//! Detects whether this process made a handle.
//!
//! A child of fork() has none of the parent's threads. Comparing a count of forks costs one load; asking for the
//! process id would cost a system call per event.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs in the child, where only async-signal-safe work is allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub fn watch() {
    // Not a Once: if another thread were inside it during a fork, the child would wait for ever.
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded (-z nodelete).
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    }
}

/// Number of forks between the first process and this one.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

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

/// Changes [`generation`] in children that are forked from now on.
pub fn watch() {
    // Not a Once: if another thread were inside it during a fork, the child would wait for ever. The flag is set after
    // the registration, so that no thread makes state and forks before: threads that come at the same time each
    // register the handler, and a child's generation grows by more than one.
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler is a function of this library, which is never unloaded (-z nodelete).
        if unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) } == 0 {
            REGISTERED.store(true, Ordering::Release);
        }
    }
}

/// Number that is greater in a forked child than in its parent.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

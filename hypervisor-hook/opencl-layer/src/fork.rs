//! State that a forked child does not share with its parent.
//!
//! After fork() the child has one thread: the reporter is gone, and locks that others held stay locked. So the state of
//! a [`PerProcess`] is abandoned in the child, which makes one of its own on first use. Nothing is freed: it is the
//! parent's copy-on-write memory.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs in the child, where only async-signal-safe work is allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Which process in a line of forks this is.
fn generation() -> u64 {
    // Not a Once: a child forked while another thread runs it would wait forever.
    if !REGISTERED.load(Ordering::Relaxed) && !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded (-z nodelete).
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    }
    GENERATION.load(Ordering::Relaxed)
}

/// A value that each process has of its own, made on first use.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<Owned<T>>,
    make: fn() -> T,
}

struct Owned<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Nothing yet. Threads that meet at the first use may all make one; one is kept.
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        let generation = generation();
        loop {
            let seen = self.current.load(Ordering::Acquire);
            // SAFETY: `current` is null or came from Box::into_raw below and is never freed.
            match unsafe { seen.as_ref() } {
                Some(owned) if owned.generation == generation => return &owned.value,
                _ => {}
            }
            let fresh = Box::into_raw(Box::new(Owned { generation, value: (self.make)() }));
            if self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread won; nobody has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

//! How a library in a foreign process tells that the process is a forked child, and state that a child does not share
//! with its parent.
//!
//! After fork() the child has one thread: the library's threads are gone, and locks that other threads held stay
//! locked. So the child abandons the state of a [`PerProcess`] and makes its own at first use. Nothing is freed: the
//! old state is the parent's copy-on-write memory.
//!
//! Forks are counted: comparing the count costs one load, asking for the process id would cost a system call. A library
//! that uses this crate must never be unloaded (`-z nodelete`), since the C library calls its handler.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs in the child, where only async-signal-safe work is allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
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

/// Number of forks between the process that called [`watch`] and this one.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value of which each process has its own, made at first use.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<Owned<T>>,
    make: fn() -> T,
}

#[derive(Debug)]
struct Owned<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// An empty cell. If several threads use it first, each may call `make`, and one value is kept.
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        watch();
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
                // SAFETY: another thread has stored its value first, so no other thread has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

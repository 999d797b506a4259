//! State that a forked child does not share with its parent.
//!
//! After fork() the child has one thread: locks that others held stay locked, and the sessions are the parent's. So
//! state that lives in a [`PerProcess`] is abandoned in the child, which starts with a fresh one. Handles of the parent
//! are then unknown to it, and every call with one returns the standard's error; all but platforms and devices, which
//! loaders and programs keep: [`Inherit`] lets these be taken over. Nothing is freed: it is the parent's copy-on-write
//! memory.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Counts the forks between the process that loaded the library and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Runs in the child, where only async-signal-safe work is allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Which process in a line of forks this is.
pub fn generation() -> u64 {
    // Not a Once: a child forked while another thread runs it would wait forever.
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded (-z nodelete).
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    }
    GENERATION.load(Ordering::Relaxed)
}

/// What a child begins with.
pub trait Inherit: Send + Sync {
    /// The value of a new process; `parent` is this process's copy of the parent's value, whose locks other threads may
    /// have held, and hold forever.
    fn inherit(parent: Option<&Self>) -> Self;
}

/// A value that each process has of its own, made on first use.
pub struct PerProcess<T> {
    current: AtomicPtr<Owned<T>>,
}

struct Owned<T> {
    generation: u64,
    value: T,
}

impl<T: Inherit> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process.
    pub fn get(&self) -> &T {
        let generation = generation();
        loop {
            let seen = self.current.load(Ordering::Acquire);
            // SAFETY: `current` is null or came from Box::into_raw below and is never freed.
            let known = unsafe { seen.as_ref() };
            match known {
                Some(owned) if owned.generation == generation => return &owned.value,
                _ => {}
            }
            let value = T::inherit(known.map(|owned| &owned.value));
            let fresh = Box::into_raw(Box::new(Owned { generation, value }));
            if self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread won; nobody has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct State(Mutex<Vec<u32>>);

    impl Inherit for State {
        fn inherit(_parent: Option<&Self>) -> Self {
            Self(Mutex::new(Vec::new()))
        }
    }

    #[test]
    fn a_forked_child_starts_empty_even_while_the_lock_is_held() {
        static STATE: PerProcess<State> = PerProcess::new();
        let mut held = STATE.get().0.lock().unwrap();
        held.push(7);
        // SAFETY: the child only touches this state and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let empty = STATE.get().0.lock().map(|list| list.is_empty()).unwrap_or(false);
            // SAFETY: ends the child without running anything else of the test harness.
            unsafe { libc::_exit(if empty { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw the parent's state");
        assert_eq!(*held, [7]);
    }
}

//! State that a forked child does not share with its parent.
//!
//! After fork() the child has one thread: locks that other threads held stay locked, and the sessions belong to the
//! parent. So the child abandons the value of a [`PerProcess`] and makes a fresh one. It doesn't know handles of
//! the parent, and calls with them return the standard's errors. Platforms and devices are the exception, since
//! loaders and programs keep their handles: [`Inherit`] lets the child take values over. Nothing is freed: the
//! memory is a copy-on-write copy of the parent's.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Number that is greater in a forked child than in its parent.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static HANDLER: Registration = Registration(AtomicBool::new(false));

/// Whether the handler that runs in forked children is registered.
///
/// The flag is set after the registration: a thread that saw it set too early could make state and fork, and the
/// child would take the parent's state for its own. So threads that come at the same time each register the handler,
/// and a child's generation grows by more than one. No `Once`: a child that was forked while another thread ran it
/// would hang.
struct Registration(AtomicBool);

impl Registration {
    /// Calls `register` unless a call has succeeded before. `register` answers 0 for success.
    fn ensure(&self, register: impl FnOnce() -> c_int) {
        if !self.0.load(Ordering::Acquire) && register() == 0 {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Runs in the child, where only async-signal-safe functions are allowed.
extern "C" fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Number that is greater in a forked child than in its parent. Registers the handler on first use.
pub fn generation() -> u64 {
    HANDLER.ensure(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded (-z nodelete).
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) }
    });
    GENERATION.load(Ordering::Relaxed)
}

/// A value that a forked child derives from its parent's.
pub trait Inherit: Send + Sync {
    /// The value of a new process. `parent` is the copy of the parent's value; other threads may have held its
    /// locks during the fork, which are then never released.
    fn inherit(parent: Option<&Self>) -> Self;
}

/// A value that each process makes on first use.
pub struct PerProcess<T> {
    current: AtomicPtr<Owned<T>>,
}

struct Owned<T> {
    generation: u64,
    value: T,
}

impl<T: Inherit> PerProcess<T> {
    /// A cell without a value.
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process.
    pub fn get(&self) -> &T {
        let generation = generation();
        loop {
            let seen = self.current.load(Ordering::Acquire);
            // SAFETY: `seen` is null or came from Box::into_raw below, and is never freed.
            let known = unsafe { seen.as_ref() };
            match known {
                Some(owned) if owned.generation == generation => return &owned.value,
                _ => {}
            }
            let value = T::inherit(known.map(|owned| &owned.value));
            let fresh = Box::into_raw(Box::new(Owned { generation, value }));
            if self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: another thread stored its value first; no other thread has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Mutex;

    struct State(Mutex<Vec<u32>>);

    impl Inherit for State {
        fn inherit(_parent: Option<&Self>) -> Self {
            Self(Mutex::new(Vec::new()))
        }
    }

    #[test]
    fn a_thread_that_comes_while_another_registers_goes_on_only_with_a_handler() {
        let (handler, registered) = (Registration(AtomicBool::new(false)), Cell::new(0));
        let register = || {
            registered.set(registered.get() + 1);
            0
        };
        handler.ensure(|| {
            handler.ensure(register);
            assert_eq!(registered.get(), 1, "the second thread would fork without a handler");
            register()
        });
        handler.ensure(register);
        assert_eq!(registered.get(), 2, "a registered handler is not registered again");
    }

    #[test]
    fn a_registration_that_failed_is_tried_again() {
        let (handler, tried) = (Registration(AtomicBool::new(false)), Cell::new(0));
        for result in [libc::ENOMEM, 0, 0] {
            handler.ensure(|| {
                tried.set(tried.get() + 1);
                result
            });
        }
        assert_eq!(tried.get(), 2);
    }

    #[test]
    fn a_forked_child_starts_empty_even_while_the_lock_is_held() {
        static STATE: PerProcess<State> = PerProcess::new();
        let mut held = STATE.get().0.lock().unwrap();
        held.push(7);
        // SAFETY: the child only accesses this state and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let empty = STATE.get().0.lock().map(|list| list.is_empty()).unwrap_or(false);
            // SAFETY: the call ends the child without running other code of the test harness.
            unsafe { libc::_exit(if empty { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child saw the parent's state");
        assert_eq!(*held, [7]);
    }
}

//! Registration of functions that run in forked children.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a function that runs in forked children is registered.
///
/// The flag is set after the registration: a thread that saw it set too early could make state and fork, and the
/// child would take the parent's state for its own. So threads that come at the same time each register the function,
/// and it runs more than once in a child. No `Once`: a child that was forked while another thread ran it would hang.
pub(crate) struct Registration(AtomicBool);

impl Registration {
    /// Nothing is registered yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Makes `handler` run in children that are forked from now on. It may call async-signal-safe functions only.
    ///
    /// Without memory the registration fails, and the next call tries again. Children that are forked in between do
    /// not notice the fork.
    pub(crate) fn ensure(&self, handler: extern "C" fn()) {
        self.ensure_by(|| {
            // SAFETY: `handler` stays callable as long as this library is loaded. Our C libraries are never unloaded
            // (-z nodelete), and glibc removes the handlers of a library that is.
            unsafe { libc::pthread_atfork(None, None, Some(handler)) }
        });
    }

    /// Calls `register` unless a call has succeeded before. `register` answers 0 for success.
    fn ensure_by(&self, register: impl FnOnce() -> c_int) {
        if !self.0.load(Ordering::Acquire) && register() == 0 {
            self.0.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_thread_that_comes_while_another_registers_goes_on_only_with_a_handler() {
        let (handler, registered) = (Registration::new(), Cell::new(0));
        let register = || {
            registered.set(registered.get() + 1);
            0
        };
        handler.ensure_by(|| {
            handler.ensure_by(register);
            assert_eq!(registered.get(), 1, "the second thread would fork without a handler");
            register()
        });
        handler.ensure_by(register);
        assert_eq!(registered.get(), 2, "a registered handler is not registered again");
    }

    #[test]
    fn a_registration_that_failed_is_tried_again() {
        let (handler, tried) = (Registration::new(), Cell::new(0));
        for result in [libc::ENOMEM, 0, 0] {
            handler.ensure_by(|| {
                tried.set(tried.get() + 1);
                result
            });
        }
        assert_eq!(tried.get(), 2);
    }
}

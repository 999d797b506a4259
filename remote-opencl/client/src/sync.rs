//! One helper: locking where a panic of another thread changes nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not a thread panicked while it held the lock: no state behind our locks is left half-changed by
/// code that can panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

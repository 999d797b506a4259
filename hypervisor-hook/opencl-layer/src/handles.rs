//! What the layer knows of an object, for as long as the application holds it.
//!
//! Only the application's own references count, which it takes and gives back through the layer.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The known objects of one kind.
#[derive(Debug)]
pub struct Handles<T> {
    known: Mutex<HashMap<usize, Known<T>>>,
}

#[derive(Debug)]
struct Known<T> {
    references: usize,
    value: T,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<T> Handles<T> {
    /// Adds a new object, which replaces an earlier one with this address.
    pub fn created(&self, handle: *mut c_void, value: T) {
        self.lock().insert(handle as usize, Known { references: 1, value });
    }

    /// Removes the object with this address.
    pub fn forget(&self, handle: *mut c_void) {
        self.lock().remove(&(handle as usize));
    }

    /// Counts a reference that the application took.
    pub fn retained(&self, handle: *mut c_void) {
        if let Some(known) = self.lock().get_mut(&(handle as usize)) {
            known.references += 1;
        }
    }

    /// Counts a reference that the application gives back; returns whether it was the last. Call it before the
    /// runtime releases the object, since another object may get the address right after.
    pub fn released(&self, handle: *mut c_void) -> bool {
        let mut all = self.lock();
        let Some(known) = all.get_mut(&(handle as usize)) else { return false };
        known.references -= 1;
        let last = known.references == 0;
        if last {
            all.remove(&(handle as usize));
        }
        last
    }

    /// The result of `read` on the object's value; `None` for an unknown object.
    pub fn with<R>(&self, handle: *mut c_void, read: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock().get_mut(&(handle as usize)).map(|known| read(&mut known.value))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Known<T>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_until_the_last_reference_is_given_back() {
        let handles = Handles::default();
        let handle = 16 as *mut c_void;
        assert!(!handles.released(handle), "an unknown one is none of ours");
        handles.created(handle, 'a');
        handles.retained(handle);
        assert!(!handles.released(handle));
        assert_eq!(handles.with(handle, |value| *value), Some('a'));
        assert!(handles.released(handle));
        assert_eq!(handles.with(handle, |value| *value), None);
        handles.created(handle, 'b');
        handles.forget(handle);
        assert!(!handles.released(handle));
    }
}

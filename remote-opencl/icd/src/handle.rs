//! Objects as C sees them: pointers to a pointer to the dispatch table, known to a registry.
//!
//! A handle from the application is only a number until the registry of its type finds it. So a handle that is
//! null, freed, foreign, garbage, or of another type gets the standard's `CL_INVALID_*` and is never dereferenced.
//! The registry counts the application's references. An object that the standard retains implicitly (a queue its
//! context, a command its buffers) is held by an `Arc`. It stays known, and its handle valid, until the
//! application's references and all `Arc`s are gone.
//!
//! ```text
//!   application ── cl_mem ──► Object { dispatch, inner }  ◄── Arc ── sub-buffer, command, kernel argument
//!                                 ▲ strong while references > 0
//!              Registry: address ─┴► { references, Weak }
//! ```

use crate::cl;
use crate::dispatch::{DISPATCH, Dispatch};
use fpga_client::ClError;
use fpga_foreign_process::PerProcess;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// A type whose objects are handed to C.
pub trait ClObject: Send + Sync + Sized + 'static {
    /// The error for a handle that is not an object of this type.
    const INVALID: cl::cl_int;

    /// The live objects of this type.
    fn registry() -> &'static Registry<Self>;

    /// Whether a forked child takes over its parent's objects of this type.
    const INHERITED: bool = false;

    /// Called once, when the last reference is gone. The handle is invalid already.
    fn destroyed(&mut self, _handle: *mut c_void) {}
}

/// An object with the pointer to its dispatch table in front, as the loader requires.
#[repr(C)]
pub struct Object<T: ClObject> {
    dispatch: &'static Dispatch,
    inner: T,
}

/// A counted reference of this library to an object.
pub type Handle<T> = Arc<Object<T>>;

/// The live objects of one type, by address.
pub struct Registry<T: ClObject>(PerProcess<Live<T>>);

struct Live<T: ClObject>(RwLock<HashMap<usize, Entry<T>>>);

struct Entry<T: ClObject> {
    /// Number of references of the application.
    references: u32,
    object: Weak<Object<T>>,
    /// Keeps the object alive while the application has references.
    owned: Option<Handle<T>>,
}

impl<T: ClObject> Object<T> {
    /// Makes an object with one reference of the application.
    pub fn new(inner: T) -> Handle<T> {
        let object = Arc::new(Self { dispatch: &DISPATCH, inner });
        let entry =
            Entry { references: 1, object: Arc::downgrade(&object), owned: Some(Arc::clone(&object)) };
        T::registry().write().insert(address(&object), entry);
        object
    }

    /// The handle for C.
    pub fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Number of references of the application.
    pub fn references(&self) -> u32 {
        T::registry().read().get(&(self.as_ptr() as usize)).map_or(0, |entry| entry.references)
    }
}

impl<T: ClObject> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ClObject> Drop for Object<T> {
    fn drop(&mut self) {
        let handle = self.as_ptr();
        T::registry().write().remove(&(handle as usize));
        self.inner.destroyed(handle);
    }
}

impl<T: ClObject> std::fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(std::any::type_name::<T>()).field("handle", &self.as_ptr()).finish_non_exhaustive()
    }
}

/// The object of a handle, or the error of its type.
pub fn lookup<T: ClObject>(handle: *mut c_void) -> Result<Handle<T>, ClError> {
    let registry = T::registry().read();
    registry.get(&(handle as usize)).and_then(|entry| entry.object.upgrade()).ok_or(ClError(T::INVALID))
}

/// Adds a reference of the application.
pub fn retain<T: ClObject>(handle: *mut c_void) -> Result<(), ClError> {
    let mut registry = T::registry().write();
    let entry = registry.get_mut(&(handle as usize)).ok_or(ClError(T::INVALID))?;
    let object = entry.object.upgrade().ok_or(ClError(T::INVALID))?;
    entry.references = entry.references.checked_add(1).ok_or(ClError(cl::CL_OUT_OF_HOST_MEMORY))?;
    // `owned` was empty if the application had released its last reference; otherwise it is the same object.
    entry.owned = Some(object);
    Ok(())
}

/// Removes a reference of the application. The object is destroyed when nothing else uses it.
pub fn release<T: ClObject>(handle: *mut c_void) -> Result<(), ClError> {
    let last = {
        let mut registry = T::registry().write();
        let entry = registry.get_mut(&(handle as usize)).ok_or(ClError(T::INVALID))?;
        entry.references = entry.references.checked_sub(1).ok_or(ClError(T::INVALID))?;
        if entry.references == 0 { entry.owned.take() } else { None }
    };
    // Dropped without the lock, since the object removes itself from the registry and its callbacks may call this
    // library.
    drop(last);
    Ok(())
}

impl<T: ClObject> Registry<T> {
    /// A registry without objects.
    pub const fn new() -> Self {
        Self(PerProcess::new(Live::inherit))
    }

    fn read(&'static self) -> RwLockReadGuard<'static, HashMap<usize, Entry<T>>> {
        // No code panics between two changes of the map, so a poisoned map is consistent.
        self.0.get().0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&'static self) -> RwLockWriteGuard<'static, HashMap<usize, Entry<T>>> {
        self.0.get().0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ClObject> Live<T> {
    /// The objects of a new process: those of its parent if the type is inherited, otherwise none.
    fn inherit(parent: Option<&Self>) -> Self {
        let inherited = match parent.filter(|_| T::INHERITED).map(|parent| parent.0.try_read()) {
            Some(Ok(map)) => {
                let entry = |(address, entry): (&usize, &Entry<T>)| (*address, entry.clone());
                map.iter().map(entry).collect()
            }
            // There is no parent, or another thread was changing the map during the fork.
            _ => HashMap::new(),
        };
        Self(RwLock::new(inherited))
    }
}

impl<T: ClObject> Clone for Entry<T> {
    fn clone(&self) -> Self {
        let Self { references, object, owned } = self;
        Self { references: *references, object: Weak::clone(object), owned: owned.clone() }
    }
}

fn address<T: ClObject>(object: &Handle<T>) -> usize {
    object.as_ptr() as usize
}

/// Implements [`ClObject`] for a type, with its own registry.
macro_rules! cl_object {
    ($type:ty, $invalid:ident $(, inherited: $inherited:expr)? $(, destroyed: $destroyed:expr)?) => {
        impl $crate::handle::ClObject for $type {
            const INVALID: $crate::cl::cl_int = $crate::cl::$invalid;
            $(const INHERITED: bool = $inherited;)?

            fn registry() -> &'static $crate::handle::Registry<Self> {
                static REGISTRY: $crate::handle::Registry<$type> = $crate::handle::Registry::new();
                &REGISTRY
            }

            $(fn destroyed(&mut self, handle: *mut std::ffi::c_void) {
                let destroyed: fn(&mut Self, *mut std::ffi::c_void) = $destroyed;
                destroyed(self, handle);
            })?
        }
    };
}
pub(crate) use cl_object;

#[cfg(test)]
mod tests;

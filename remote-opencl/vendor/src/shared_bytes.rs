//! Memory that other processes may change.

use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A range of bytes that other processes may change at any time. It stays mapped as long as this value lives.
#[derive(Debug, Clone)]
pub struct SharedBytes {
    address: NonNull<u8>,
    len: usize,
    /// What keeps the range mapped.
    _mapping: Arc<dyn Any + Send + Sync>,
}

// SAFETY: plain memory that lives as long as the value. It is reached through raw pointers only, by the vendor and by
// `copy`. What another process writes at the same time changes bytes, never whether they are valid.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Makes a range of `len` bytes from `address` on.
    ///
    /// # Safety
    /// The bytes are mapped, readable and writable, as long as `mapping` lives, and no reference to them exists.
    #[must_use]
    pub unsafe fn new(address: NonNull<u8>, len: usize, mapping: Arc<dyn Any + Send + Sync>) -> Self {
        Self { address, len, _mapping: mapping }
    }

    /// The first byte: valid for reads and writes of [`Self::len`] bytes, which may change at any time.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A copy of the bytes as they are now.
    #[must_use]
    pub fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // SAFETY: the source is mapped for `len` bytes; the target has room for as many and belongs to this function
        // alone. If another process writes at the same time, a mixture of old and new bytes is copied, and any bytes
        // are valid.
        unsafe {
            ptr::copy_nonoverlapping(self.address(), bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        bytes
    }
}

//! The only place where the application's raw memory is touched: sources of writes, targets of reads, map shadows.
#![allow(unsafe_code)]

use bytes::Bytes;

/// Where the bytes of a write come from.
#[derive(Debug)]
pub struct HostSource(Kind);

#[derive(Debug)]
enum Kind {
    Owned(Bytes),
    Borrowed(Region),
}

#[derive(Debug, Clone, Copy)]
struct Region {
    address: *mut u8,
    len: usize,
}

// SAFETY: a region is an address and a length; the constructors' contracts make the bytes behind it usable from the
// thread that drives the session.
unsafe impl Send for Region {}
// SAFETY: as above; all writes go through one event's completion.
unsafe impl Sync for Region {}

impl HostSource {
    /// Bytes that this crate owns.
    pub fn owned(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Owned(bytes.into()))
    }

    /// `len` bytes at `address`, read until the command's event has completed (small ones are captured at once).
    ///
    /// # Safety
    /// The bytes must stay readable until the event of the command that gets this source has completed or failed.
    pub unsafe fn borrowed(address: *const u8, len: usize) -> Self {
        Self(Kind::Borrowed(Region { address: address.cast_mut(), len }))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Owned(bytes) => bytes.len(),
            Kind::Borrowed(region) => region.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the bytes of a read go; also the application's memory behind a `CL_MEM_USE_HOST_PTR` buffer.
#[derive(Debug)]
pub struct HostTarget(Region);

impl HostTarget {
    /// `len` bytes at `address`, written before the command's event completes.
    ///
    /// # Safety
    /// The bytes must stay writable, and nobody else may read or write them, until the event of the command that gets
    /// this target has completed or failed. For a buffer's host memory: until the buffer is destroyed, and nobody may
    /// access them except as the standard allows.
    pub unsafe fn borrowed(address: *mut u8, len: usize) -> Self {
        Self(Region { address, len })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

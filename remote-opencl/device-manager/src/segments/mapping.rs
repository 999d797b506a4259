//! The memory itself: memfds, seals, mappings, and raw addresses in them.

use super::Segment;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A memfd that is mapped here; emptied and unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that lives as long as the value. It is only reached through raw pointers: by the vendor, and by
// `Slice::copy`; what the client writes at the same time changes bytes, never what is valid.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Some bytes of a segment, which stays mapped as long as this lives.
#[derive(Debug, Clone)]
pub struct Slice {
    segment: Arc<Segment>,
    offset: usize,
    len: usize,
}

impl Mapping {
    /// A new memfd of `len` zeroes whose size nobody can change, all of its pages there.
    pub(super) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create("fpga-segment", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
        // All pages now, or an error: a page that is lacking later would be a signal.
        fallocate(&fd, FallocateFlags::empty(), 0, i64::try_from(len).map_err(io::Error::other)?)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        // Populated: the first touch of a page costs about as much as copying it.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is as long.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok((Self { address, len }, fd))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All of it as words that anybody may change.
    pub(super) fn words(&self) -> &[AtomicU64] {
        let words = self.len / size_of::<AtomicU64>();
        // SAFETY: mapped for as many words, from the beginning of a page on, for as long as the reference; any bytes are
        // an integer, and those who share the memory change it at the same time, which is what atomics are for.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The client may keep the descriptor for ever: the pages would stay this process's. A hole in the file is zeroes.
        // SAFETY: mapped in `create` with this length, shared and writable; whoever has an address in it keeps this value.
        if unsafe { libc::madvise(self.address.as_ptr().cast(), self.len, libc::MADV_REMOVE) } != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "The pages of a segment can't be given back");
        }
        // SAFETY: mapped in `create` with this length; whoever has an address in it keeps this value.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

impl Slice {
    /// The caller has checked that the range lies inside.
    pub(super) fn new(segment: Arc<Segment>, offset: usize, len: usize) -> Self {
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= segment.mapping.len));
        Self { segment, offset, len }
    }

    /// Where it begins: valid for reads and writes of [`Self::len`] bytes, which may change at any time.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.segment.mapping.address.as_ptr().wrapping_add(self.offset)
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What it holds now.
    #[must_use]
    pub fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // SAFETY: the source is mapped for `len` bytes, the target has room for as many, and is ours alone. The client
        // may write at the same time: then any mixture of bytes is copied, all of which are valid as such.
        unsafe {
            ptr::copy_nonoverlapping(self.address(), bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        bytes
    }
}

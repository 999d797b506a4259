//! The memory of segments: memfds, seals, mappings, and raw addresses in them.

use super::Segment;
use fpga_vendor::SharedBytes;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A mapped memfd. On drop its pages are given back and it is unmapped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that lives as long as the value. It is reached through raw pointers only, by the vendor and
// by `SharedBytes::copy`, and as atomics by `words`. What the client writes at the same time changes bytes, never whether
// they are valid.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes a memfd of `len` zeros with a sealed size and all pages allocated.
    pub(super) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = memfd_create("fpga-segment", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
        // All pages are allocated now, or the call fails. A page that is missing later would raise a signal.
        fallocate(&fd, FallocateFlags::empty(), 0, i64::try_from(len).map_err(io::Error::other)?)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        // The mapping is populated, since the first touch of a page costs about as much as copying it.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the address of a new mapping, and the file is `len` bytes long.
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

    /// The memory as words that other processes may change.
    pub(super) fn words(&self) -> &[AtomicU64] {
        let words = self.len / size_of::<AtomicU64>();
        // SAFETY: mapped for as many words, from the beginning of a page on, for as long as the reference. Any
        // bytes are a valid integer. The processes that share the memory may change it at the same time, which
        // atomics allow.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The client may keep the descriptor, and the pages would stay charged to this process. So they are
        // removed; the file then has a hole that reads as zeros.
        // SAFETY: `create` mapped this length, shared and writable, and whatever holds an address in the mapping
        // also holds this value.
        if unsafe { libc::madvise(self.address.as_ptr().cast(), self.len, libc::MADV_REMOVE) } != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "The pages of a segment can't be given back");
        }
        // SAFETY: `create` mapped this length, and whatever holds an address in the mapping also holds this value.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

impl Segment {
    /// A range of the segment. The caller has checked that the segment contains the range.
    pub(super) fn slice(segment: &Arc<Self>, offset: usize, len: usize) -> SharedBytes {
        let Mapping { address, len: mapped } = segment.mapping;
        debug_assert!(offset.checked_add(len).is_some_and(|end| end <= mapped));
        // SAFETY: the range lies in the mapping, so the address does not overflow.
        let address = unsafe { address.add(offset) };
        // SAFETY: the mapping is readable and writable and lives as long as the segment. No reference to its bytes
        // exists: segments for slices are not used as words.
        unsafe { SharedBytes::new(address, len, segment.clone()) }
    }
}

//! The memory of segments: memfds, seals, mappings, and raw addresses in them.

use super::Segment;
use fpga_protocol::segments::{PAGE_BYTES, PLACED_ADDRESSES};
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

/// Number of random addresses that are tried for a placed mapping. Each is free unless placed mappings lie there.
const PLACES_TRIED: u32 = 16;

impl Mapping {
    /// Makes a memfd of `len` zeros with a sealed size and all pages allocated.
    pub(super) fn create(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memfd(len)?;
        // SAFETY: the kernel chooses the address of a new mapping, and the file is `len` bytes long.
        let address = unsafe { map(&fd, ptr::null_mut(), len, 0)? };
        Ok((Self { address, len }, fd))
    }

    /// Makes a memfd like [`Self::create`], at a random address of [`PLACED_ADDRESSES`].
    pub(super) fn create_placed(len: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = sealed_memfd(len)?;
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for _ in 0..PLACES_TRIED {
            let wanted = random_place(len)?;
            // SAFETY: the flag keeps the kernel from replacing another mapping, and the file is `len` bytes long.
            match unsafe { map(&fd, ptr::without_provenance_mut(wanted), len, libc::MAP_FIXED_NOREPLACE) } {
                Ok(address) if address.as_ptr() as usize == wanted => return Ok((Self { address, len }, fd)),
                Ok(elsewhere) => {
                    // A kernel before 4.17 takes the address for a hint.
                    // SAFETY: mapped above with this length, and nothing uses it.
                    unsafe { libc::munmap(elsewhere.as_ptr().cast(), len) };
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.address.as_ptr() as u64
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

/// A memfd of `len` zeros with a sealed size and all pages allocated.
fn sealed_memfd(len: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create("fpga-segment", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
    // All pages are allocated now, or the call fails. A page that is missing later would raise a signal.
    fallocate(&fd, FallocateFlags::empty(), 0, i64::try_from(len).map_err(io::Error::other)?)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// Maps all of a file, populated, since the first touch of a page costs about as much as copying it.
///
/// # Safety
/// The file is `len` bytes long and can't shrink. With `flags`, no mapping is replaced that anything uses.
unsafe fn map(fd: &OwnedFd, at: *mut libc::c_void, len: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let flags = flags | libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: the caller upholds this function's contract.
    let address =
        unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, fd.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A random address of a page for `len` bytes, so that mappings of other sessions and of clients are rarely there.
fn random_place(len: usize) -> io::Result<usize> {
    let mut random = [0; size_of::<u64>()];
    // SAFETY: the pointer and the length are those of the array. The kernel serves requests of up to 256 bytes whole.
    let got = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if usize::try_from(got).ok() != Some(random.len()) {
        return Err(io::Error::last_os_error());
    }
    let places = (PLACED_ADDRESSES.end - PLACED_ADDRESSES.start).saturating_sub(len as u64) / PAGE_BYTES;
    let place = u64::from_ne_bytes(random).checked_rem(places).ok_or(io::ErrorKind::OutOfMemory)?;
    usize::try_from(PLACED_ADDRESSES.start + place * PAGE_BYTES).map_err(io::Error::other)
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

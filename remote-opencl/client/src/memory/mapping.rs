//! A segment in this process: checks, the mapping, and copies to and from it.
//!
//! The manager can't take the memory away: its size is sealed, and the mapping outlives the manager.
#![allow(unsafe_code)]

use crate::memory::host_memory::{HostSource, HostTarget, MemoryOwner};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A mapping of shared memory, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that lives as long as the value. Ranges, each with one owner in this process, determine
// which thread may touch which bytes. The manager can change bytes, but not which addresses are valid.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a descriptor from the manager, after checking that it has `len` bytes and can't shrink.
    pub(super) fn new(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        Self::checked(fd, len, 0, 0)
    }

    /// Maps a descriptor like [`Self::new`], at this address.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and one if anything is mapped there.
    pub(super) fn placed(fd: &OwnedFd, len: usize, address: usize) -> io::Result<Self> {
        Self::checked(fd, len, address, libc::MAP_FIXED_NOREPLACE)
    }

    /// Keeps `len` bytes of addresses from `address` on free of other mappings. No access is allowed there.
    ///
    /// # Errors
    /// The system's error if anything is mapped there.
    pub(super) fn reserved(len: usize, address: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let at = ptr::without_provenance_mut(address);
        // SAFETY: a new mapping of no file; the flag keeps the kernel from replacing another mapping.
        let mapped = unsafe { libc::mmap(at, len, libc::PROT_NONE, flags, -1, 0) };
        Self::at_address(mapped, len, address)
    }

    /// The result of a call of `mmap`. With an `address` other than 0 the mapping has to be there.
    fn at_address(mapped: *mut libc::c_void, len: usize, address: usize) -> io::Result<Self> {
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self { address: NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len };
        // Kernels before 4.17 take the address for a hint.
        let is_there = address == 0 || mapping.address() == address;
        if is_there { Ok(mapping) } else { Err(io::ErrorKind::AddrInUse.into()) }
    }

    /// Address of the first byte.
    pub(super) fn address(&self) -> usize {
        self.address.as_ptr() as usize
    }

    /// Maps a descriptor after the checks of [`Self::new`], with further flags at `address`, which is 0 without any.
    fn checked(fd: &OwnedFd, len: usize, address: usize, flags: i32) -> io::Result<Self> {
        let size = fstat(fd)?.st_size;
        if usize::try_from(size).ok() != Some(len) {
            return Err(io::Error::other(format!("it has {size} bytes, and {len} were promised")));
        }
        let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL) {
            return Err(io::Error::other("its size isn't sealed"));
        }
        // `MAP_POPULATE`: the pages exist already, and without it each of them would cost a page fault.
        let flags = flags | libc::MAP_SHARED | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = ptr::without_provenance_mut(address);
        // SAFETY: a new mapping at an address that the kernel chooses, or that nothing has, of a file whose length was
        // checked and is sealed.
        let mapped = unsafe { libc::mmap(at, len, protection, flags, fd.as_raw_fd(), 0) };
        Self::at_address(mapped, len, address)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The whole mapping as words, which the manager may change at any time.
    pub(super) fn words(&self) -> &[AtomicU64] {
        let words = self.len / size_of::<AtomicU64>();
        // SAFETY: the mapping has this many words, begins at a page, and lives as long as the reference. Any bytes
        // are a valid integer, and the words are atomic because the manager changes them at the same time.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), words) }
    }

    /// Address of `len` bytes at `offset`; `None` if they don't lie inside the mapping.
    fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then(|| self.address.as_ptr().wrapping_add(offset))
    }

    /// Copies all of `source` to `offset`. Returns false and copies nothing if it doesn't fit.
    pub(super) fn write(&self, offset: usize, source: &HostSource) -> bool {
        let address = self.at(offset, source.len());
        if let Some(address) = address {
            // SAFETY: the address is valid for as many bytes as the source has, and the range has one owner: nothing
            // else in this process touches the bytes, except the application through a map, as the standard allows.
            unsafe { source.copy_all_to(address) };
        }
        address.is_some()
    }

    /// Fills `target` from `offset` on. Returns false and copies nothing if there aren't as many bytes.
    pub(super) fn read(&self, offset: usize, target: &mut HostTarget) -> bool {
        let address = self.at(offset, target.len());
        if let Some(address) = address {
            // SAFETY: as in `write`, with source and destination exchanged.
            unsafe { target.copy_all_from(address) };
        }
        address.is_some()
    }

    /// Sets `len` bytes from `offset` to zero.
    pub(super) fn zero(&self, offset: usize, len: usize) {
        if let Some(address) = self.at(offset, len) {
            // SAFETY: the address is valid for `len` bytes, and the range has one owner.
            unsafe { address.write_bytes(0, len) };
        }
    }

    /// The `len` bytes at `offset` as host memory that holds `owner`, which must keep this mapping alive; `None` if
    /// they don't lie inside the mapping.
    pub(super) fn memory(
        &self,
        offset: usize,
        len: usize,
        owner: Arc<dyn MemoryOwner>,
    ) -> Option<HostTarget> {
        // SAFETY: the address is valid for `len` bytes as long as `owner` lives. The application accesses them only
        // as the standard allows for maps.
        self.at(offset, len).map(|address| unsafe { HostTarget::owned_by(address, len, owner) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; every range keeps this value alive.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;

    fn memfd(len: i64, seals: SealFlag) -> OwnedFd {
        let fd = memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        fd
    }

    #[test]
    fn what_could_shrink_or_has_another_size_is_not_mapped() {
        let sealed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        assert!(Mapping::new(&memfd(8192, sealed), 8192).is_ok());
        assert!(Mapping::new(&memfd(4096, sealed), 8192).is_err());
        assert!(Mapping::new(&memfd(8192, SealFlag::F_SEAL_SHRINK), 8192).is_err());
        assert!(Mapping::new(&memfd(8192, SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL), 8192).is_err());
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Mapping::new(&socket.into(), 8192).is_err());
    }

    #[test]
    fn nothing_is_copied_beyond_the_end() {
        let sealed = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        let mapping = Mapping::new(&memfd(8192, sealed), 8192).unwrap();
        let source = HostSource::owned(vec![7; 4096]);
        assert!(mapping.write(4096, &source));
        assert!(!mapping.write(4097, &source) && !mapping.write(usize::MAX, &source));
        let mut bytes = vec![0; 4096];
        // SAFETY: the bytes live until the end of the test.
        let mut target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        assert!(!mapping.read(4097, &mut target));
        assert!(mapping.read(4096, &mut target));
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}

//! A segment in this process: checked, mapped, and copied from and to.
//!
//! The manager can't take the memory away: its size is sealed, and the mapping outlives the manager.
#![allow(unsafe_code)]

use crate::host_memory::{HostSource, HostTarget, Keep};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Shared memory; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that lives as long as the value; who may touch which bytes when is a matter of ranges, of which
// each has one owner in this process. What the manager does to it changes bytes, never what is valid.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a descriptor from the manager, if it is what it must be: `len` bytes that nobody can take away.
    pub(super) fn new(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let size = fstat(fd)?.st_size;
        if usize::try_from(size).ok() != Some(len) {
            return Err(io::Error::other(format!("it has {size} bytes, and {len} were promised")));
        }
        let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL) {
            return Err(io::Error::other("its size isn't sealed"));
        }
        // Populated: the pages are there, and each would be a fault of its own otherwise.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is and stays as long.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All of it as words that anybody may change.
    pub(super) fn words(&self) -> &[AtomicU64] {
        let words = self.len / size_of::<AtomicU64>();
        // SAFETY: mapped for as many words, from the beginning of a page on, for as long as the reference; any bytes are
        // an integer, and the manager changes them at the same time, which is what atomics are for.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), words) }
    }

    /// Where `len` bytes from `offset` are; they must lie inside, or nothing may be done with the address.
    fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        inside.then(|| self.address.as_ptr().wrapping_add(offset))
    }

    /// Copies all of a source to `offset`; false, and nothing is copied, where it doesn't fit.
    pub(super) fn write(&self, offset: usize, source: &HostSource) -> bool {
        let address = self.at(offset, source.len());
        if let Some(address) = address {
            // SAFETY: the address is valid for as many bytes as the source has, and the range has one owner: nobody
            // else in this process touches them, but the application where it has mapped them, as the standard allows.
            unsafe { source.copy_all_to(address) };
        }
        address.is_some()
    }

    /// Fills a target from `offset` on; false, and nothing is copied, where there aren't as many bytes.
    pub(super) fn read(&self, offset: usize, target: &mut HostTarget) -> bool {
        let address = self.at(offset, target.len());
        if let Some(address) = address {
            // SAFETY: as in `write`, the other way round.
            unsafe { target.copy_all_from(address) };
        }
        address.is_some()
    }

    /// Sets `len` bytes from `offset` to zero.
    pub(super) fn zero(&self, offset: usize, len: usize) {
        if let Some(address) = self.at(offset, len) {
            // SAFETY: valid for as many bytes; the range has one owner.
            unsafe { address.write_bytes(0, len) };
        }
    }

    /// `len` bytes from `offset` as host memory, which keeps `keep` and so must keep this mapping; `None` where there
    /// aren't as many.
    pub(super) fn memory(&self, offset: usize, len: usize, keep: Arc<dyn Keep>) -> Option<HostTarget> {
        // SAFETY: valid for as many bytes as long as `keep` lives; who accesses them when is what the standard says of
        // maps, by the application's promise.
        self.at(offset, len).map(|address| unsafe { HostTarget::kept(address, len, keep) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; ranges keep this value.
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

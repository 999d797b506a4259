//! Settings of the C library's allocator, which is Rust's too: freed memory stays for the next transfer, since
//! first touches of fresh pages cost more than copying into them. Elsewhere than on glibc nothing happens.
//!
//! All threads share one heap, so that any thread can reuse what another has freed. With one heap per thread,
//! glibc's default, the kept memory adds up, and the process takes several times what its clients make it hold.

#[cfg(target_env = "gnu")]
use fpga_net::memory::MemoryLimit;

/// Maximum number of freed bytes that a process keeps.
#[cfg(target_env = "gnu")]
const MOST_KEPT_BYTES: u64 = 512 << 20;

/// Size in bytes below which allocations come from the heap and not from `mmap`. It is the largest value that glibc
/// accepts.
#[cfg(target_env = "gnu")]
const FROM_KEPT_BYTES: libc::c_int = 32 << 20;

/// Memory that the allocator has from the system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that were freed and are kept.
    pub kept: u64,
}

/// Sets the parameters of the allocator. Call it before other threads start: a thread that has allocated keeps its
/// own heap.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    {
        // Only a quarter of the limit is not on clients' accounts, so at most half of that quarter is kept free.
        let limit = MemoryLimit::of_this_process().map_or(u64::MAX, |limit| limit.bytes / 8);
        let kept = libc::c_int::try_from(limit.min(MOST_KEPT_BYTES)).unwrap_or(libc::c_int::MAX);
        let parameters = [
            (libc::M_ARENA_MAX, 1),
            (libc::M_MMAP_THRESHOLD, FROM_KEPT_BYTES),
            (libc::M_TRIM_THRESHOLD, kept),
        ];
        for (parameter, value) in parameters {
            // SAFETY: mallopt only sets parameters, and takes its own lock.
            if unsafe { libc::mallopt(parameter, value) } == 0 {
                tracing::debug!(parameter, "The allocator keeps its default");
            }
        }
    }
}

/// The allocator's current numbers; `None` if the C library does not have them. Holds the heap's lock while it
/// counts the free chunks.
#[must_use]
pub fn heap() -> Option<Heap> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2 only reads, under the allocator's own locks.
        let info = unsafe { libc::mallinfo2() };
        let used = u64::try_from(info.uordblks.saturating_add(info.hblkhd)).ok()?;
        Some(Heap { used, kept: u64::try_from(info.fordblks).ok()? })
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

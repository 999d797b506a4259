//! Keeps freed memory for the next transfer: first touches of fresh pages cost more than copying into them.
//!
//! Only the C library's allocator is told, which is Rust's too. Elsewhere than on glibc nothing happens.
//!
//! All threads have one heap, so that what one of them has freed is there for all. With a heap for each thread, as glibc
//! has by default, what is kept adds up, and the process has several times what its clients make it hold.

#[cfg(target_env = "gnu")]
use fpga_net::memory::MemoryLimit;

/// The most freed memory that a process keeps, in bytes.
#[cfg(target_env = "gnu")]
const MOST_KEPT_BYTES: u64 = 512 << 20;

/// Smaller allocations come from the kept memory; the largest value that glibc takes.
#[cfg(target_env = "gnu")]
const FROM_KEPT_BYTES: libc::c_int = 32 << 20;

/// What the allocator has from the system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    /// What is in use.
    pub used: u64,
    /// What was freed and is kept.
    pub kept: u64,
}

/// To be called before there are other threads: one that allocates has a heap of its own by then.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    {
        // An eighth of what the process may use: a quarter is for what clients don't make it hold.
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

/// What the allocator has now; nothing where it doesn't tell. Takes the heap's lock for as long as it takes to count the free
/// pieces.
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

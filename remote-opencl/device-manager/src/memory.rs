//! Keeps freed memory for the next transfer: first touches of fresh pages cost more than copying into them.
//!
//! Only the C library's allocator is told, which is Rust's too. Elsewhere than on glibc nothing happens.

/// Freed memory that the process keeps, in bytes.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 512 << 20;

/// Smaller allocations come from the kept memory; the largest value that glibc takes.
#[cfg(target_env = "gnu")]
const FROM_KEPT_BYTES: libc::c_int = 32 << 20;

/// To be called before other threads allocate much.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        // One arena: those of threads give whole heaps back whatever the threshold.
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, FROM_KEPT_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
    ] {
        // SAFETY: mallopt only sets parameters, and takes its own lock.
        if unsafe { libc::mallopt(parameter, value) } == 0 {
            tracing::debug!(parameter, "The allocator keeps its default");
        }
    }
}

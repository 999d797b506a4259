//! The memory of one manager where several share a cgroup: by itself each would count on all of it.

use fpga_net::memory::MemoryLimit;
use fpga_session::governor;

/// Least memory that is counted on for a manager: a runtime with its compiler and threads needs as much.
const LEAST_BYTES: u64 = 1 << 30;

/// The flags of `serve` that limit a manager to its share of this process's memory; none if that is unknown.
pub(super) fn flags(managers: usize) -> Vec<(&'static str, String)> {
    let limit = MemoryLimit::of_this_process();
    limit.map(|limit| flags_of(limit.bytes, managers)).unwrap_or_default()
}

fn flags_of(bytes: u64, managers: usize) -> Vec<(&'static str, String)> {
    let managers = u64::try_from(managers.max(1)).unwrap_or(u64::MAX);
    let share = (bytes / managers).max(LEAST_BYTES);
    let store = governor::store_limit_of(share);
    [
        ("--store-limit", store),
        ("--client-memory", governor::limit_of(share, store)),
        ("--tenant-memory", (share / 2).max(LEAST_BYTES)),
        ("--tenant-memory-of-all", share),
    ]
    .map(|(flag, bytes)| (flag, format!("{}MiB", bytes >> 20)))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn managers_share_the_memory_and_none_gets_too_little_for_a_runtime() {
        let of_all = |bytes, managers| flags_of(bytes, managers).pop().unwrap();
        assert_eq!(of_all(8 * GIB, 2), ("--tenant-memory-of-all", "4096MiB".to_owned()));
        assert_eq!(of_all(2 * GIB, 4), ("--tenant-memory-of-all", "1024MiB".to_owned()));
    }
}

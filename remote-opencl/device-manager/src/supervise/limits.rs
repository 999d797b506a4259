//! The limits of one manager where several share a cgroup: by itself each would count on all of the memory, and
//! its tenants could have all of that.

use fpga_net::memory::MemoryLimit;
use fpga_session::governor;

/// Least memory that is counted on for a manager: a runtime with its compiler and threads needs as much.
const LEAST_BYTES: u64 = 1 << 30;

/// Limits of a tenant besides its memory.
const TENANT: &str = "sessions=64,buffers=65536,programs=1024,queued-tasks=16384,upload=1GiB";

/// The flags of `serve` that limit a manager to its share of this process's memory, and each tenant to half of that;
/// without the limits of memory if it is unknown.
pub(super) fn flags(managers: usize) -> Vec<(&'static str, String)> {
    let limit = MemoryLimit::of_this_process();
    limit
        .map_or_else(|| vec![("--default-quota", TENANT.to_owned())], |limit| flags_of(limit.bytes, managers))
}

fn flags_of(bytes: u64, managers: usize) -> Vec<(&'static str, String)> {
    let managers = u64::try_from(managers.max(1)).unwrap_or(u64::MAX);
    let share = (bytes / managers).max(LEAST_BYTES);
    let store = governor::store_limit_of(share);
    let of_tenant = (share / 2).max(LEAST_BYTES);
    let size = |bytes: u64| format!("{}MiB", bytes >> 20);
    vec![
        ("--store-limit", size(store)),
        ("--client-memory", size(governor::limit_of(share, store))),
        ("--tenant-memory", size(of_tenant)),
        ("--tenant-memory-of-all", size(share)),
        ("--default-quota", format!("memory={},{TENANT}", size(of_tenant))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn managers_share_the_memory_and_none_gets_too_little_for_a_runtime() {
        let value = |bytes, managers, flag| {
            let mut flags = flags_of(bytes, managers).into_iter();
            flags.find(|(name, _)| *name == flag).unwrap().1
        };
        assert_eq!(value(8 * GIB, 2, "--tenant-memory-of-all"), "4096MiB");
        assert_eq!(value(8 * GIB, 2, "--default-quota"), format!("memory=2048MiB,{TENANT}"));
        assert_eq!(value(2 * GIB, 4, "--tenant-memory-of-all"), "1024MiB");
        assert_eq!(value(2 * GIB, 4, "--tenant-memory"), "1024MiB");
    }
}

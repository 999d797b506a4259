//! Holds the manager and all tenants' processes together to the memory that they may use.
//!
//! Each process has a bound of its own, but several of them could fill what there is, and memory that is shared is in no
//! such bound. The kernel's answer is to end processes, in Kubernetes all of the container's. So the manager looks how much is
//! in use, and ends the process that has most before the limit is reached. How often it looks depends on how much is left.

use super::guard::session_of;
use super::pool::TenantProcesses;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Faster than tenants' processes can fill memory, in bytes a second: each page is zeroed first.
const FASTEST: u64 = 16 << 30;
/// How long the manager waits between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// One part of so many is left for what is not counted: page tables, sockets, files in memory.
const RESERVE: u64 = 16;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Looks at these processes until they are dropped, on a thread of its own.
///
/// # Errors
/// There is no thread.
pub(super) fn watch(processes: &Arc<TenantProcesses>, limit: u64) -> io::Result<()> {
    let processes = Arc::downgrade(processes);
    let limit = limit - limit / RESERVE;
    thread::Builder::new().name("memory".to_owned()).spawn(move || {
        while let Some(all) = processes.upgrade() {
            let left = look(&all, limit);
            drop(all);
            let until_full = Duration::from_millis(left.saturating_mul(1000) / FASTEST);
            thread::sleep(until_full.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    })?;
    Ok(())
}

/// Ends the process that has most where all have more than `limit`. How much is left.
fn look(all: &TenantProcesses, limit: u64) -> u64 {
    let running = all.running();
    if running.is_empty() {
        return limit;
    }
    let used = of_tenants(running.keys().copied());
    let sum = used.values().sum::<u64>() + in_use("self");
    if sum > limit
        && let Some((leader, bytes)) = used.iter().max_by_key(|(_, bytes)| **bytes)
        && let Some(largest) = running.get(leader)
    {
        tracing::warn!(tenant = largest.tenant().as_str(), bytes, sum, limit, "No memory is left");
        largest.is_too_large();
    }
    limit.saturating_sub(sum)
}

/// How much memory each of these leaders and the programs that it has started use.
fn of_tenants(leaders: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
    let mut used: BTreeMap<u32, u64> = leaders.map(|leader| (leader, 0)).collect();
    let own = fs::read_link("/proc/self/exe").ok();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Some(leader) = session_of(process) else { continue };
        let Some(bytes) = used.get_mut(&leader) else { continue };
        // A linker that has not begun yet shares all of its parent's memory.
        let begun = || fs::read_link(format!("/proc/{process}/exe")).ok() != own;
        if process == leader || begun() {
            *bytes += in_use(&process.to_string()) + unmapped(process);
        }
    }
    used
}

/// Memory of a process that is no file's, in bytes; 0 where it has ended.
fn in_use(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let of = |name: &str| {
        let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    };
    1024 * (of("RssAnon:").unwrap_or(0) + of("RssShmem:").unwrap_or(0))
}

/// Shared memory of which a process has a descriptor: it need not be mapped anywhere.
fn unmapped(process: u32) -> u64 {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let memory = descriptors.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
    });
    memory.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.blocks() * BLOCK_BYTES)).sum()
}

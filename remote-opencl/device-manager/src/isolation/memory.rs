//! Keeps the manager and all tenant processes together within their memory limit.
//!
//! Each process has a limit of its own, but several processes could exhaust the total, and no such limit
//! counts shared memory. The kernel would then kill processes; in Kubernetes it kills all of the container.
//! So the manager measures the memory in use and kills the process that has most before the limit is reached.
//! The less memory is left, the shorter is the interval between measurements.

use super::guard::session_of;
use super::tenant_process::TenantProcess;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Upper bound of the rate at which tenant processes fill memory, in bytes per second: each page is zeroed
/// first.
const FASTEST: u64 = 16 << 30;
/// Bounds of the pause between two measurements.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Divisor of the limit: this part is reserved for memory that is not counted (page tables, sockets, files in
/// memory).
const RESERVE: u64 = 16;
/// Unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// The running processes by their ids.
pub(super) type Running = BTreeMap<u32, Arc<TenantProcess>>;

/// Starts a thread that watches the processes of `running` until there is an answer no more.
///
/// # Errors
/// The thread can't be started.
pub(super) fn watch(running: impl Fn() -> Option<Running> + Send + 'static, limit: u64) -> io::Result<()> {
    let limit = limit - limit / RESERVE;
    thread::Builder::new().name("memory".to_owned()).spawn(move || {
        while let Some(running) = running() {
            let left = look(&running, limit);
            drop(running);
            let until_full = Duration::from_millis(left.saturating_mul(1000) / FASTEST);
            thread::sleep(until_full.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
        }
    })?;
    Ok(())
}

/// Measures once. If all processes together use more than `limit`, kills the one that uses most. Returns the
/// bytes that are left.
fn look(running: &Running, limit: u64) -> u64 {
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

/// Memory in use, in bytes, of each leader and the programs that it has started.
fn of_tenants(leaders: impl Iterator<Item = u32>) -> BTreeMap<u32, u64> {
    let mut used: BTreeMap<u32, u64> = leaders.map(|leader| (leader, 0)).collect();
    let own = fs::read_link("/proc/self/exe").ok();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Some(leader) = session_of(process) else { continue };
        let Some(bytes) = used.get_mut(&leader) else { continue };
        // A linker shares all memory of its parent until it calls `execve`.
        let begun = || fs::read_link(format!("/proc/{process}/exe")).ok() != own;
        if process == leader || begun() {
            *bytes += in_use(&process.to_string()) + unmapped(process);
        }
    }
    used
}

/// Anonymous and shared memory of a process, in bytes, without mapped files; 0 if the process has ended.
fn in_use(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let of = |name: &str| {
        let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    };
    1024 * (of("RssAnon:").unwrap_or(0) + of("RssShmem:").unwrap_or(0))
}

/// Bytes of shared memory that a process has descriptors of, whether it is mapped or not.
fn unmapped(process: u32) -> u64 {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let memory = descriptors.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
    });
    memory.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.blocks() * BLOCK_BYTES)).sum()
}

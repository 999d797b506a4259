//! The memory of processes.

use anyhow::{Context as _, Result};

/// A field of a process's memory in MiB: `VmRSS` is the current amount, `VmHWM` the peak.
///
/// # Errors
/// There is no such process or field.
pub fn memory_mib(pid: i32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: f64 = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no such field")?.parse()?;
    Ok(kib / 1024.0)
}

/// Resets the peak of a process's memory.
///
/// # Errors
/// The kernel refuses.
pub fn forget_most_memory(pid: i32) -> Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("can't reset the process's peak memory")
}

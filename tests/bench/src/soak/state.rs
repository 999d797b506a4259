//! The compared resources: a process's descriptors, threads and memory, and files and processes that were left
//! behind.

use super::managers::Manager;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Most freed memory that a manager's allocator keeps for reuse (the device manager's `memory.rs`). The amount
/// depends on the largest transfers that happened at the same time so far, so it grows as long as chance produces
/// larger ones, and does not indicate leaks.
const MOST_KEPT_KIB: u64 = 512 << 10;
/// Memory that a manager at rest may have in use beyond an earlier rest: what the runtime keeps of programs that ran
/// for the first time in between, and per session slightly more than the 6 KiB that PoCL keeps of it (the code of its
/// kernels).
const MORE_IN_USE_KIB: u64 = 8 << 10;
const OF_SESSION_KIB: u64 = 16;
/// Memory outside the heap that may be added: stacks, the runtime's code.
const MORE_BESIDE_KIB: u64 = 32 << 10;

/// The resources of a process.
#[derive(Debug, Clone)]
pub struct State {
    descriptors: Vec<String>,
    threads: usize,
    resident_kib: u64,
    /// Heap memory in use, and freed heap memory that the allocator keeps.
    used_kib: u64,
    kept_kib: u64,
    /// Number of sessions opened so far.
    sessions: u64,
    /// Number of mapped segments.
    segments: usize,
}

/// The results of all checks.
#[derive(Debug, Default)]
pub struct Verdicts(Vec<Verdict>);

#[derive(Debug)]
struct Verdict {
    what: String,
    wanted: String,
    found: String,
    good: bool,
}

impl State {
    /// The resources of a manager now.
    ///
    /// # Errors
    /// The manager's process is gone, or its metrics can't be read.
    pub fn of(manager: &Manager) -> Result<Self> {
        let of = Path::new("/proc").join(manager.pid().to_string());
        let mut descriptors = Vec::new();
        for entry in std::fs::read_dir(of.join("fd"))? {
            // A descriptor may be closed in the meantime, such as the connection for metrics.
            if let Ok(target) = std::fs::read_link(entry?.path()) {
                let kind = target.to_string_lossy();
                descriptors.push(kind.split(':').next().unwrap_or_default().to_owned());
            }
        }
        descriptors.sort();
        let status = std::fs::read_to_string(of.join("status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let maps = std::fs::read_to_string(of.join("maps"))?;
        Ok(Self {
            descriptors,
            threads: std::fs::read_dir(of.join("task"))?.count(),
            resident_kib: resident.split_whitespace().next().context("no number")?.parse()?,
            used_kib: u64::try_from(manager.metric("heap_used_bytes")?)? >> 10,
            kept_kib: u64::try_from(manager.metric("heap_kept_bytes")?)? >> 10,
            sessions: u64::try_from(manager.metric("sessions_opened_total")?)?,
            segments: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        })
    }
}

impl State {
    /// Resident memory outside the heap.
    fn beside_heap_kib(&self) -> u64 {
        self.resident_kib.saturating_sub(self.used_kib + self.kept_kib)
    }
}

impl Verdicts {
    /// Records the result of a check.
    pub fn check(&mut self, what: String, wanted: &str, found: &str, good: bool) {
        self.0.push(Verdict { what, wanted: wanted.to_owned(), found: found.to_owned(), good });
    }

    /// Checks that a manager has no session, no waiting task and no slot in use.
    ///
    /// # Errors
    /// The metrics can't be read.
    pub fn idle(&mut self, manager: &Manager) -> Result<()> {
        for metric in ["sessions", "tasks_waiting", "slots_in_use"] {
            let found = manager.metric(metric)?;
            self.check(format!("{metric} of {}", manager.name()), "0", &found.to_string(), found == 0);
        }
        Ok(())
    }

    /// Checks that the manager which was never killed has no more resources than before.
    pub fn compare(&mut self, before: &State, after: &State) {
        let mut count = |what: &str, before: usize, after: usize| {
            let (wanted, found) = (format!("at most {before}"), after.to_string());
            self.check(format!("{what} of steady"), &wanted, &found, after <= before);
        };
        count("descriptors", before.descriptors.len(), after.descriptors.len());
        count("threads", before.threads, after.threads);
        count("segments", 0, after.segments);
        // Both measurements are without clients, so memory in use belongs to no session.
        let mut memory = |what: &str, more: u64, before: u64, after: u64| {
            let wanted = format!("at most {} MiB", (before + more) >> 10);
            let found = format!("{} MiB, after {} MiB", after >> 10, before >> 10);
            self.check(format!("{what} of steady"), &wanted, &found, after <= before + more);
        };
        let in_use = MORE_IN_USE_KIB + OF_SESSION_KIB * (after.sessions - before.sessions);
        memory("heap in use", in_use, before.used_kib, after.used_kib);
        memory("memory beside the heap", MORE_BESIDE_KIB, before.beside_heap_kib(), after.beside_heap_kib());
        let more = MOST_KEPT_KIB + in_use + MORE_BESIDE_KIB;
        memory("memory", more, before.resident_kib.saturating_sub(before.kept_kib), after.resident_kib);
        if before.descriptors.len() < after.descriptors.len() {
            println!("descriptors before: {:?}\nafter: {:?}", before.descriptors, after.descriptors);
        }
    }

    /// Whether all checks succeeded.
    pub fn all_good(&self) -> bool {
        self.0.iter().all(|verdict| verdict.good)
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Verdict { what, wanted, found, good } in &self.0 {
            let mark = if *good { "ok  " } else { "LEAK" };
            writeln!(f, "{mark} {what:<40} wanted {wanted:<18} found {found}")?;
        }
        Ok(())
    }
}

/// The names of the files in /dev/shm.
pub fn shared_memory_files() -> BTreeSet<String> {
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

/// The files that managers left in their temporary folder, without the runtime's own.
///
/// # Errors
/// The folder can't be read.
pub fn files_of_ours(folder: &Path) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let name = file?.file_name().to_string_lossy().into_owned();
        let socket = name.ends_with(".sock") || name.contains(".sock.");
        if name.starts_with("fpga-") || name.starts_with(".tmp") || socket {
            left.push(name);
        }
    }
    Ok(left)
}

/// The processes with this mark in their environment, or with the folder, as tenants' processes have.
pub fn processes_of(mark: &str, folder: &Path) -> Vec<String> {
    let mark = format!("SOAK_MARK={mark}\0");
    let folder = format!("={}/", folder.display());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let has = |text: &str| environment.windows(text.len()).any(|window| window == text.as_bytes());
        if has(&mark) || has(&folder) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} {}", process.file_name().display(), name.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 10;

    /// The state of a manager at rest after `sessions` sessions.
    fn at_rest(sessions: u64, used_kib: u64, kept_kib: u64, beside_kib: u64) -> State {
        let resident_kib = used_kib + kept_kib + beside_kib;
        State { descriptors: Vec::new(), threads: 8, resident_kib, used_kib, kept_kib, sessions, segments: 0 }
    }

    #[test]
    fn memory_that_sessions_leave_behind_is_a_leak_and_memory_that_is_kept_for_reuse_is_none() {
        let before = at_rest(40, 141 * MIB, 5 * MIB, 68 * MIB);
        for (after, good) in [
            (at_rest(140, 142 * MIB, 316 * MIB, 68 * MIB), true),
            (at_rest(840, 141 * MIB + 800 * 32, 316 * MIB, 68 * MIB), false),
            (at_rest(840, 141 * MIB, 316 * MIB, 110 * MIB), false),
            (at_rest(140, 141 * MIB, 700 * MIB, 68 * MIB), false),
        ] {
            let mut verdicts = Verdicts::default();
            verdicts.compare(&before, &after);
            assert_eq!(verdicts.all_good(), good, "{verdicts}");
        }
    }
}

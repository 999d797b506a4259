//! What is held against what: a process's descriptors, threads and memory, and what lies about.

use super::managers::Manager;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// What the allocator of a manager keeps of freed memory, for reuse (the device manager's `memory.rs`). How much of it there is
/// depends on the largest transfers that came together so far, so it grows for as long as chance finds larger ones; it
/// tells nothing of leaks.
const MOST_KEPT_KIB: u64 = 512 << 10;
/// What a manager at rest may have more in use than at an earlier rest: what the runtime keeps of programs that ran for the
/// first time meanwhile, and for each session a little more than the 6 KiB that PoCL keeps of one (its kernels' code).
const MORE_IN_USE_KIB: u64 = 8 << 10;
const OF_SESSION_KIB: u64 = 16;
/// What it may have more that is no heap: stacks, the runtime's code.
const MORE_BESIDE_KIB: u64 = 32 << 10;

/// What a process has.
#[derive(Debug, Clone)]
pub struct State {
    descriptors: Vec<String>,
    threads: usize,
    resident_kib: u64,
    /// Of the heap, what is in use, and what was freed and is kept.
    used_kib: u64,
    kept_kib: u64,
    /// Sessions so far.
    sessions: u64,
    /// Mapped segments.
    segments: usize,
}

/// What was looked at, and whether it is as it should be.
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
    /// That of a manager now.
    ///
    /// # Errors
    /// It has gone.
    pub fn of(manager: &Manager) -> Result<Self> {
        let of = Path::new("/proc").join(manager.pid().to_string());
        let mut descriptors = Vec::new();
        for entry in std::fs::read_dir(of.join("fd"))? {
            // One may close meanwhile: that of the metrics.
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
    /// Memory that the heap has not.
    fn beside_heap_kib(&self) -> u64 {
        self.resident_kib.saturating_sub(self.used_kib + self.kept_kib)
    }
}

impl Verdicts {
    /// Notes one.
    pub fn check(&mut self, what: String, wanted: &str, found: &str, good: bool) {
        self.0.push(Verdict { what, wanted: wanted.to_owned(), found: found.to_owned(), good });
    }

    /// A manager at rest has nothing to do.
    ///
    /// # Errors
    /// It can't be asked.
    pub fn idle(&mut self, manager: &Manager) -> Result<()> {
        for metric in ["sessions", "tasks_waiting", "slots_in_use"] {
            let found = manager.metric(metric)?;
            self.check(format!("{metric} of {}", manager.name()), "0", &found.to_string(), found == 0);
        }
        Ok(())
    }

    /// The manager that was never killed has no more than it had.
    pub fn compare(&mut self, before: &State, after: &State) {
        let mut count = |what: &str, before: usize, after: usize| {
            let (wanted, found) = (format!("at most {before}"), after.to_string());
            self.check(format!("{what} of steady"), &wanted, &found, after <= before);
        };
        count("descriptors", before.descriptors.len(), after.descriptors.len());
        count("threads", before.threads, after.threads);
        count("segments", 0, after.segments);
        // Like is held against like: both times no client is there, so what is in use is what is kept for nobody.
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

    /// Whether everything is.
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

/// The files in /dev/shm.
pub fn shared_memory_files() -> BTreeSet<String> {
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

/// What the managers have left in their temporary folder; a runtime's own files don't count.
///
/// # Errors
/// The system's.
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

/// The processes that have this mark in their environment, or, as the processes of tenants, the folder.
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

    /// A manager at rest after so many sessions.
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

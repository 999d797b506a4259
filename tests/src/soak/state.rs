//! What is held against what: a process's descriptors, threads and memory, and what lies about.

use super::managers::Manager;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Memory that a manager may have more at the end: its allocator keeps up to 512 MiB that were freed.
const MORE_MEMORY_KIB: u64 = 256 << 10;

/// What a process has.
#[derive(Debug, Clone)]
pub struct State {
    descriptors: Vec<String>,
    threads: usize,
    resident_kib: u64,
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
            segments: maps.lines().filter(|line| line.contains("/memfd:")).count(),
        })
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
        let most = before.resident_kib + MORE_MEMORY_KIB;
        let wanted = format!("at most {} MiB", most >> 10);
        let found = format!("{} MiB, after {} MiB", after.resident_kib >> 10, before.resident_kib >> 10);
        self.check("memory of steady".to_owned(), &wanted, &found, after.resident_kib <= most);
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

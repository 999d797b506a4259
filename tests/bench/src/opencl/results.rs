//! The results of `fpga-bench opencl` as a file: one JSON object, from which `fpga-bench speed` writes the document.

use super::comparison::Comparison;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Everything that was measured in one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Day of the begin, UTC: `2026-01-31`.
    pub day: String,
    pub machine: Machine,
    /// How the device manager was built: the name of its folder, `release` or `debug`.
    pub build: String,
    /// Number of rounds that were asked for.
    pub rounds: u32,
    pub runtimes: Vec<Runtime>,
}

/// What the figures depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processors: usize,
    /// The processor's name.
    pub model: String,
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
}

/// The rows over one OpenCL runtime.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Runtime {
    pub name: String,
    pub floors: Vec<Floor>,
    pub rows: Vec<Comparison>,
    pub left_out: Vec<LeftOut>,
}

/// What a round trip without remote OpenCL takes: one figure per measurement, before and after the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    pub name: String,
    pub p50_us: Vec<f64>,
    pub p99_us: Vec<f64>,
}

/// Rows without figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Titles of the rows.
    pub rows: Vec<String>,
    pub cause: Cause,
    pub why: String,
}

/// Why rows have no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The machine is too small.
    TooLittleMemory,
    /// A program failed.
    Failed,
}

impl Machine {
    /// Describes this machine.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn this() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("can't read {path}"));
        let processors = read("/proc/cpuinfo")?;
        let model =
            processors.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1));
        Ok(Self {
            processors: std::thread::available_parallelism().context("can't count the processors")?.get(),
            model: model.unwrap_or("unknown").trim().to_owned(),
            memory_mib: memory_mib("MemTotal")?,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        })
    }
}

/// A field of `/proc/meminfo` in MiB.
///
/// # Errors
/// There is no such field.
pub fn memory_mib(field: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("can't read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("no such field in /proc/meminfo")?;
    Ok(kib.trim().parse::<u64>()? / 1024)
}

impl Results {
    /// No rows yet, on this machine, today.
    ///
    /// # Errors
    /// `/proc` can't be read.
    pub fn begin(rounds: u32, build: String) -> Result<Self> {
        let day = Timestamp::now().strftime("%Y-%m-%d").to_string();
        Ok(Self { day, machine: Machine::this()?, build, rounds, runtimes: Vec::new() })
    }

    /// Writes the file, and its folder if there is none.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// There is no such file, or it has other contents.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("can't read {}; write it first: fpga-bench opencl --out FILE", path.display())
        })?;
        serde_json::from_str(&text).with_context(|| {
            format!("{} is no result of this version of fpga-bench opencl; measure again", path.display())
        })
    }

    /// Takes the rows of another file of the same machine; they replace rows of the same name, runtime and path.
    ///
    /// # Errors
    /// The other file is of another machine or build.
    pub fn merge(&mut self, newer: Self) -> Result<()> {
        ensure!(
            newer.machine == self.machine && newer.build == self.build,
            "results of several machines or builds can't be in one table; give one of them only"
        );
        self.day = newer.day;
        self.rounds = self.rounds.min(newer.rounds);
        for runtime in newer.runtimes {
            match self.runtimes.iter_mut().find(|known| known.name == runtime.name) {
                Some(known) => known.merge(runtime),
                None => self.runtimes.push(runtime),
            }
        }
        Ok(())
    }
}

impl Runtime {
    /// Whether a program failed.
    pub fn has_failures(&self) -> bool {
        self.left_out.iter().any(|left_out| left_out.cause == Cause::Failed)
    }

    fn merge(&mut self, newer: Self) {
        for row in newer.rows {
            self.left_out.retain(|left_out| !left_out.rows.contains(&row.title));
            match self.rows.iter_mut().find(|known| known.row == row.row && known.path == row.path) {
                Some(known) => *known = row,
                None => self.rows.push(row),
            }
        }
        for floor in newer.floors {
            match self.floors.iter_mut().find(|known| known.name == floor.name) {
                Some(known) => {
                    known.p50_us.extend(floor.p50_us);
                    known.p99_us.extend(floor.p99_us);
                }
                None => self.floors.push(floor),
            }
        }
        self.left_out.extend(newer.left_out);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Results that a run over PoCL wrote.
    pub fn recorded() -> Results {
        serde_json::from_str(include_str!("recorded.json")).unwrap()
    }

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this().unwrap();
        assert!(
            machine.processors > 0 && machine.memory_mib > 0 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
        assert!(memory_mib("MemNothing").is_err());
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/opencl.json");
        let results = recorded();
        results.save(&file).unwrap();
        assert_eq!(Results::load(&file).unwrap(), results);
        std::fs::write(&file, "{}").unwrap();
        let error = format!("{:#}", Results::load(&file).unwrap_err());
        assert!(error.contains("measure again"), "{error}");
    }

    #[test]
    fn newer_rows_replace_older_ones_of_the_same_machine() {
        let mut results = recorded();
        let count = results.runtimes[0].rows.len();
        let mut newer = recorded();
        newer.runtimes[0].rows.truncate(1);
        newer.runtimes[0].rows[0].ours.p50 = 1234.0;
        results.merge(newer.clone()).unwrap();
        assert_eq!(results.runtimes[0].rows.len(), count);
        assert!((results.runtimes[0].rows[0].ours.p50 - 1234.0).abs() < 1e-9);
        newer.machine.processors += 1;
        assert!(results.merge(newer).is_err());
    }
}

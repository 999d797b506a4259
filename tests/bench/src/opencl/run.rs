//! Runs the programs of tests/opencl-programs, natively or by `fpga-device-manager exec`.

use super::comparison::{Comparison, Sample};
use super::plan::{Path, Row, Run};
use crate::soak::managers::Manager;
use anyhow::{Context as _, Result, bail, ensure};
use std::cell::OnceCell;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Longest time of one run of a program, in seconds.
const LONGEST_S: u32 = 300;
/// Exit status of timeout(1) for a program that ran longer.
const TIMED_OUT: i32 = 124;

/// The built programs and the device manager.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
    device_manager: PathBuf,
}

/// The programs over one OpenCL runtime.
#[derive(Debug)]
pub struct Over<'a> {
    programs: &'a Programs,
    runtime: &'a str,
    /// The environment of native runs.
    native: Vec<(&'static str, PathBuf)>,
    /// The manager that gives each tenant a process, started when it is first needed.
    isolating: OnceCell<Isolating>,
}

/// A manager with `--isolate process`.
#[derive(Debug)]
struct Isolating {
    manager: Manager,
    folder: TempDir,
}

impl Programs {
    /// Checks all paths before the first run, so that a missing program is reported at once.
    ///
    /// # Errors
    /// A program is missing.
    pub fn find(folder: &FilePath, device_manager: Option<&FilePath>, rows: &[Row]) -> Result<Self> {
        // The program `several` starts `workload`.
        for program in rows.iter().map(|row| row.run.program).chain(["workload"]) {
            let program = folder.join(program);
            ensure!(
                program.exists(),
                "{} is missing; build it: make -C tests/opencl-programs OUT={}",
                program.display(),
                std::path::absolute(folder)?.display()
            );
        }
        let device_manager = match device_manager {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .context("can't tell where this program is")?
                .with_file_name("fpga-device-manager"),
        };
        ensure!(
            device_manager.exists(),
            "{} is missing; build it: cargo build --release -p fpga-device-manager -p fpga-opencl-icd",
            device_manager.display()
        );
        Ok(Self { folder: folder.to_owned(), device_manager })
    }

    /// How the device manager was built: the name of its folder.
    ///
    /// # Errors
    /// The working directory is unknown.
    pub fn build(&self) -> Result<String> {
        let path = std::path::absolute(&self.device_manager)?;
        let folder = path.parent().and_then(FilePath::file_name);
        Ok(folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
    }

    /// The programs over `runtime`.
    ///
    /// # Errors
    /// The runtime is not installed.
    pub fn over<'a>(&'a self, runtime: &'a str) -> Result<Over<'a>> {
        Ok(Over { programs: self, runtime, native: native_environment(runtime)?, isolating: OnceCell::new() })
    }
}

impl Over<'_> {
    /// Runs a program on all its paths, round after round, and compares each path with native for each row.
    ///
    /// # Errors
    /// A run fails or prints no measurement.
    pub fn compare(&self, run: Run, rows: &[Row], rounds: u32) -> Result<Vec<Comparison>> {
        let rounds = rounds.min(run.most_rounds);
        // By path, by row, by round.
        let mut samples = vec![vec![Vec::new(); rows.len()]; run.paths.len()];
        for round in 1..=rounds {
            for path in run.order(round) {
                eprint!("\r{} {round}/{rounds} {}        ", run.told(), path.name());
                let output = self.output(run, path)?;
                let at = run.paths.iter().position(|known| *known == path).unwrap_or_default();
                for (row, of_row) in rows.iter().zip(&mut samples[at]) {
                    of_row.push(Sample::parse(row, &output)?);
                }
            }
        }
        eprint!("\r{:70}\r", "");
        let mut compared = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            for (path, ours) in run.paths.iter().zip(&samples).skip(1) {
                let pairs = samples[0][at].iter().copied().zip(ours[at].iter().copied()).collect();
                compared.push(Comparison::new(row, *path, pairs)?);
            }
        }
        Ok(compared)
    }

    fn isolating(&self) -> Result<&Isolating> {
        if self.isolating.get().is_none() {
            let program = &self.programs.device_manager;
            let folder = tempfile::tempdir()?;
            let icd = std::path::absolute(program)?.with_file_name("libfpga_opencl_icd.so");
            std::fs::write(folder.path().join("fpga.icd"), format!("{}\n", icd.display()))?;
            let args = ["--isolate", "process", "--listen", "tcp://127.0.0.1:0", "--insecure-tcp"];
            let manager = Manager::start(program, folder.path(), "isolating", self.runtime, "bench", &args)?;
            // The cell was empty above, and nobody else has it.
            let _ = self.isolating.set(Isolating { manager, folder });
        }
        self.isolating.get().context("no manager")
    }

    /// What a program prints.
    fn output(&self, run: Run, path: Path) -> Result<String> {
        let program = self.programs.folder.join(run.program);
        // The limit of timeout(1) ends the program, or `exec`, which passes the signal on.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--kill-after=5", &LONGEST_S.to_string()]);
        let exec = ["exec", "--runtime", self.runtime];
        match path {
            Path::Native => drop(command.envs(self.native.iter().map(|(name, value)| (*name, value)))),
            Path::Unix => drop(command.arg(&self.programs.device_manager).args(exec).arg("--")),
            Path::Tcp => drop(command.arg(&self.programs.device_manager).args(exec).args(["--tcp", "--"])),
            Path::Grpc => {
                command
                    .arg(&self.programs.device_manager)
                    .args(exec)
                    .arg("--")
                    .env("FPGA_COMMAND_RING", "off");
            }
            Path::Process | Path::ProcessGrpc | Path::ProcessTcp => {
                let isolating = self.isolating()?;
                let address = isolating.manager.addresses().get(usize::from(path == Path::ProcessTcp));
                command.env("FPGA_DEVICE_MANAGERS", address.context("the manager has too few addresses")?);
                command.env("OCL_ICD_VENDORS", isolating.folder.path());
                if path == Path::ProcessGrpc {
                    command.env("FPGA_COMMAND_RING", "off");
                }
            }
        }
        let output = command
            .arg(&program)
            .args(run.args)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("can't start {} ({})", program.display(), path.name()))?;
        if !output.status.success() {
            let (what, by) = (run.told(), path.name());
            ensure!(output.status.code() != Some(TIMED_OUT), "{what} ({by}) ran longer than {LONGEST_S} s");
            bail!(
                "{what} ({by}) failed, {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The environment with which the ICD loader loads only `runtime`, from the folders that `make setup` uses.
fn native_environment(runtime: &str) -> Result<Vec<(&'static str, PathBuf)>> {
    let vendors = match runtime {
        "pocl" => {
            let mut found = std::fs::read_dir("/etc/OpenCL/vendors")
                .context("/etc/OpenCL/vendors can't be read; run: make setup")?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| {
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pocl"))
                });
            found.next().context("PoCL is not installed; run: make setup")?
        }
        "intel-fpga" | "intel-cpu" => {
            let folder = std::path::absolute("build/intel-opencl")?;
            let icd = folder.join("icd").join(runtime);
            ensure!(icd.exists(), "{} is missing; run: RUNTIME={runtime} make setup", icd.display());
            return Ok(vec![("OCL_ICD_VENDORS", icd), ("LD_LIBRARY_PATH", folder.join("lib"))]);
        }
        path if FilePath::new(path).exists() => std::path::absolute(path)?,
        other => bail!("runtime {other:?} is unknown; write pocl, intel-fpga, intel-cpu or an ICD's path"),
    };
    Ok(vec![("OCL_ICD_VENDORS", vendors)])
}

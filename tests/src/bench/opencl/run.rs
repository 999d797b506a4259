//! Runs the programs of tests/opencl-programs, natively or by `fpga-device-manager exec`.

use super::measurement::{Sample, Samples};
use super::plan::{Measure, Path};
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;

/// Paths of all programs, and the environment for native runs.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
    device_manager: PathBuf,
    runtime: String,
    native: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Checks all paths before the first run, so that a missing program is reported at once.
    ///
    /// # Errors
    /// A program or the runtime is missing.
    pub fn find(folder: &FilePath, device_manager: Option<&FilePath>, runtime: &str) -> Result<Self> {
        for measure in super::plan::MEASURES {
            let program = folder.join(measure.program);
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
        let native = native_environment(runtime)?;
        Ok(Self { folder: folder.to_owned(), device_manager, runtime: runtime.to_owned(), native })
    }

    /// Name of the OpenCL runtime.
    #[must_use]
    pub fn runtime(&self) -> &str {
        &self.runtime
    }

    /// Runs a measure on all its paths, round after round.
    ///
    /// # Errors
    /// A run fails or prints no measurement.
    pub fn take_turns(&self, measure: &Measure, rounds: u32) -> Result<Samples> {
        let mut samples = Samples::default();
        for round in 1..=rounds.min(measure.rounds) {
            for path in measure.paths.iter().copied() {
                eprint!("\r{} {round}/{rounds} {}        ", measure.title, path.name());
                samples.push(path, self.run(measure, path)?);
            }
        }
        eprint!("\r{:60}\r", "");
        Ok(samples)
    }

    fn run(&self, measure: &Measure, path: Path) -> Result<Sample> {
        let program = self.folder.join(measure.program);
        let mut command = match path {
            Path::Native => {
                let mut command = Command::new(&program);
                command.envs(self.native.iter().map(|(name, value)| (*name, value)));
                command
            }
            Path::Unix | Path::Grpc | Path::Tcp => {
                let mut command = Command::new(&self.device_manager);
                command.args(["exec", "--runtime", &self.runtime]);
                match path {
                    Path::Tcp => drop(command.arg("--tcp")),
                    Path::Grpc => drop(command.env("FPGA_COMMAND_RING", "off")),
                    Path::Native | Path::Unix => {}
                }
                command.arg("--").arg(&program);
                command
            }
        };
        let output = command
            .args(measure.args)
            .output()
            .with_context(|| format!("can't start {} ({})", program.display(), path.name()))?;
        if !output.status.success() {
            bail!(
                "{} ({}) failed, {}:\n{}",
                program.display(),
                path.name(),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Sample::parse(measure, &String::from_utf8_lossy(&output.stdout))
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

//! The benchmark of the remote library: the same unmodified OpenCL program, natively and through a device manager,
//! taking turns in one run on one machine, so that the ratios hold whatever else the machine does.

use super::measurement;
use super::plan::{MEASURES, Path};
use super::run::Programs;
use anyhow::Result;
use std::path::PathBuf;

/// Compares remote OpenCL with the native runtime, in one run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fpga-bench opencl --programs build/opencl-programs --runtime pocl --rounds 5"
)]
pub struct Args {
    /// The folder with the built programs of tests/opencl-programs.
    #[arg(long, default_value = "build/opencl-programs")]
    programs: PathBuf,
    /// The OpenCL runtime below: pocl, intel-fpga, intel-cpu or an ICD's path.
    #[arg(long, env = "RUNTIME", default_value = "pocl")]
    runtime: String,
    /// How often each program runs on each path; the table has the median of the rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The device manager, if it does not lie beside this program.
    #[arg(long)]
    device_manager: Option<PathBuf>,
}

impl Args {
    /// Runs all measures and prints the table.
    ///
    /// # Errors
    /// A program is missing, fails, or prints no measurement.
    pub fn run(self) -> Result<()> {
        let Self { programs, runtime, rounds, device_manager } = self;
        let programs = Programs::find(programs, device_manager, runtime)?;
        println!("runtime {}, {rounds} rounds, paths taking turns", programs.runtime());
        println!("{}", measurement::header());
        for measure in MEASURES {
            let samples = programs.take_turns(measure, rounds)?;
            for path in [Path::Unix, Path::Tcp] {
                println!("{}", measurement::row(measure, path, &samples));
            }
        }
        Ok(())
    }
}

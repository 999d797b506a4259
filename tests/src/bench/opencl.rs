//! The benchmark of remote OpenCL: the same unmodified OpenCL program runs natively and through a device manager, in
//! turns on one machine, so that the ratio doesn't depend on other load.

use super::floors::{self, Socket};
use super::measurement::{self, Samples};
use super::plan::{BULK, BULK_MIB, LAUNCH, MEASURES, Path};
use super::run::Programs;
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// Number of measured round trips of tonic.
const ROUND_TRIPS: usize = 5000;

/// Compares remote OpenCL with the native runtime, in one run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fpga-bench opencl --programs build/opencl-programs --runtime pocl --rounds 5"
)]
pub struct Args {
    /// The folder with the built programs of tests/opencl-programs.
    #[arg(long, default_value = "build/opencl-programs")]
    programs: PathBuf,
    /// The OpenCL runtimes, separated by commas: pocl, intel-fpga, intel-cpu or an ICD's path. A runtime that is not
    /// installed is reported and left out.
    #[arg(long, env = "RUNTIME", default_value = "pocl,intel-cpu,intel-fpga", value_delimiter = ',')]
    runtime: Vec<String>,
    /// Number of runs of each program on each path; the table has the median over these rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only measures whose title contains this text.
    #[arg(long, default_value = "")]
    only: String,
    /// The device manager [default: beside this program].
    #[arg(long)]
    device_manager: Option<PathBuf>,
}

/// The cost of the transports without remote OpenCL.
struct Floors {
    unix: Duration,
    tcp: Duration,
    raw_bulk: Duration,
}

impl Args {
    /// Runs all measures and prints the tables.
    ///
    /// # Errors
    /// A program is missing, fails, or prints no measurement, or there is no runtime at all.
    pub fn run(self) -> Result<()> {
        let floors = Floors::measure(self.rounds)?;
        let mut measured = 0;
        let mut last = None;
        for runtime in &self.runtime {
            match Programs::find(&self.programs, self.device_manager.as_deref(), runtime) {
                Ok(programs) => {
                    self.table(&programs, &floors)?;
                    measured += 1;
                }
                Err(error) => {
                    println!("\nruntime {runtime}: not measured, {error:#}");
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if measured == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn table(&self, programs: &Programs, floors: &Floors) -> Result<()> {
        println!("\nruntime {}, {} rounds at most, paths taking turns", programs.runtime(), self.rounds);
        println!("{}", measurement::header());
        for measure in MEASURES.iter().filter(|measure| measure.title.contains(&self.only)) {
            let samples = programs.take_turns(measure, self.rounds)?;
            for path in measure.paths.iter().filter(|path| **path != Path::Native) {
                println!("{}", measurement::row(measure, *path, &samples));
            }
            if measure.title == LAUNCH.title {
                floors.compare_launch(&samples);
            }
            if measure.title == BULK.title {
                floors.compare_bulk(&samples);
            }
        }
        Ok(())
    }
}

impl Floors {
    fn measure(rounds: u32) -> Result<Self> {
        let [unix, tcp] = [Socket::Unix, Socket::Tcp].map(|socket| floors::round_trips(socket, ROUND_TRIPS));
        let (unix, tcp) = (unix?, tcp?);
        let raw_bulk = floors::raw_there_and_back(BULK_MIB << 20, usize::try_from(rounds)? + 2)?;
        for (name, times) in [("unix", &unix), ("tcp", &tcp)] {
            let [p50, p99] = [50, 99].map(|percent| times.percentile(percent).as_secs_f64() * 1e6);
            println!("bare tonic round trip, {name}: p50 {p50:.1} µs, p99 {p99:.1} µs");
        }
        println!("{BULK_MIB} MiB over raw TCP, there and back: {:.1} ms", raw_bulk.as_secs_f64() * 1e3);
        Ok(Self { unix: unix.percentile(50), tcp: tcp.percentile(50), raw_bulk })
    }

    fn compare_launch(&self, samples: &Samples) {
        let native = samples.median(Path::Native);
        for (path, floor) in [(Path::Grpc, self.unix), (Path::Tcp, self.tcp)] {
            let (added, floor) = (samples.median(path) - native, floor.as_secs_f64() * 1e6);
            println!(
                "  of that over {}: {added:.1} µs more than native, {:.2} × a bare tonic round trip of {floor:.1} µs",
                path.name(),
                added / floor
            );
        }
    }

    fn compare_bulk(&self, samples: &Samples) {
        let raw = self.raw_bulk.as_secs_f64() * 1e3;
        let ours = samples.median(Path::Tcp);
        println!(
            "  of that over tcp: {:.0} % of what a raw socket moves in the same time",
            100.0 * raw / ours
        );
    }
}

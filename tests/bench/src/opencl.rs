//! The benchmark of remote OpenCL: the same unmodified OpenCL program runs natively and through a device manager, in
//! turns on one machine, so that the ratio doesn't depend on other load.

mod comparison;
mod floors;
mod plan;
mod results;
mod rows;
mod run;
pub mod speed;

use anyhow::{Result, bail};
use comparison::Comparison;
use plan::Row;
use results::{Cause, Floor, LeftOut, Results, Runtime, memory_mib};
use run::{Over, Programs};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The file with the results of all rows over all runtimes.
const RESULTS: &str = "build/bench/opencl.json";
/// All known runtimes.
const RUNTIMES: &str = "pocl,intel-cpu,intel-fpga";

const EXAMPLES: &str = "Examples:
  fpga-bench opencl                                              everything, a quarter of an hour
  fpga-bench opencl --rows null --runtimes pocl --rounds 5       one row, in seconds
  fpga-bench opencl --rows small,write-kernel-read --out small.json";

/// Compares remote OpenCL with the native runtime, in one run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder with the built programs of tests/opencl-programs.
    #[arg(long, default_value = "build/opencl-programs")]
    programs: PathBuf,
    /// The OpenCL runtimes, separated by commas: pocl, intel-fpga, intel-cpu or an ICD's path. A runtime that is not
    /// installed is reported and left out.
    #[arg(long, default_value = RUNTIMES, value_delimiter = ',')]
    runtimes: Vec<String>,
    /// Groups of rows (launch, small, large, kernels, clients, idle) or single rows, separated by commas; an unknown
    /// name gets the list [default: all].
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Number of runs of each program on each path; the table has medians and extremes over these rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The file for the results, as JSON [default: build/bench/opencl.json where all rows are measured over all
    /// runtimes, else none].
    #[arg(long)]
    out: Option<PathBuf>,
    /// The device manager [default: beside this program].
    #[arg(long)]
    device_manager: Option<PathBuf>,
}

impl Args {
    /// Measures the rows, prints the tables and writes the results. Whether goals are reached is printed only.
    ///
    /// # Errors
    /// A program is missing, fails, or prints no measurement, or there is no runtime at all.
    pub fn run(self) -> Result<()> {
        let rows = rows::chosen(&self.rows)?;
        let programs = Programs::find(&self.programs, self.device_manager.as_deref(), &rows)?;
        let everything = self.rows.is_empty() && self.runtimes.join(",") == RUNTIMES;
        let out = self.out.or_else(|| everything.then(|| PathBuf::from(RESULTS)));
        let mut results = Results::begin(self.rounds, programs.build()?)?;
        for runtime in &self.runtimes {
            let over = match programs.over(runtime) {
                Ok(over) => over,
                Err(error) => {
                    println!("\nruntime {runtime}: not measured, {error:#}");
                    continue;
                }
            };
            println!("\nruntime {runtime}, {} rounds at most, paths taking turns", self.rounds);
            results.runtimes.push(measure(runtime, &over, &rows, self.rounds)?);
            // What has been measured is kept if a later runtime fails.
            save(&results, out.as_deref())?;
        }
        if let Some(out) = out.filter(|_| !results.runtimes.is_empty()) {
            println!("\nresults: {}", out.display());
        }
        if results.runtimes.is_empty() {
            bail!("no runtime was measured; run: make setup");
        }
        if results.runtimes.iter().any(Runtime::has_failures) {
            bail!("not all rows were measured");
        }
        Ok(())
    }
}

fn save(results: &Results, out: Option<&Path>) -> Result<()> {
    out.map_or(Ok(()), |out| results.save(out))
}

/// Measures the rows over one runtime. Where a program fails its rows are left out, and the others go on.
fn measure(name: &str, over: &Over<'_>, rows: &[Row], rounds: u32) -> Result<Runtime> {
    let begin = Instant::now();
    let mut floors = floors::measure()?;
    let (mut compared, mut left_out) = (Vec::new(), Vec::new());
    println!("{}", Comparison::header());
    for (run, rows) in rows::runs(rows) {
        let free_mib = memory_mib("MemAvailable")?;
        let (cause, why) = if free_mib < run.needs_mib {
            let why = format!("{free_mib} MiB of memory are free, {} MiB are needed", run.needs_mib);
            (Cause::TooLittleMemory, why)
        } else {
            match over.compare(run, &rows, rounds) {
                Ok(comparisons) => {
                    for comparison in &comparisons {
                        println!("{}", comparison.line());
                    }
                    compared.extend(comparisons);
                    continue;
                }
                Err(error) => (Cause::Failed, format!("{error:#}")),
            }
        };
        let rows: Vec<String> = rows.iter().map(|row| row.title.to_owned()).collect();
        println!("{}: not measured, {why}", rows.join(", "));
        left_out.push(LeftOut { rows, cause, why });
    }
    for (floor, again) in floors.iter_mut().zip(floors::measure()?) {
        floor.p50_us.extend(again.p50_us);
        floor.p99_us.extend(again.p99_us);
        println!("{}", told(floor));
    }
    println!("took {} s", begin.elapsed().as_secs());
    Ok(Runtime { name: name.to_owned(), floors, rows: compared, left_out })
}

fn told(Floor { name, p50_us, p99_us }: &Floor) -> String {
    let list = |figures: &[f64]| {
        let figures: Vec<String> = figures.iter().map(|figure| comparison::told(*figure)).collect();
        figures.join(", ")
    };
    format!("before, after: {name}: p50 {} µs, p99 {} µs", list(p50_us), list(p99_us))
}

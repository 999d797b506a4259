//! `fpga-sim reproduce`: reproduces the evaluation of the paper (S-10) under each reading of its text, and compares
//! the figures.

mod kept;
mod paper;
mod readings;
mod runs;
mod tables;

use crate::output::print;
use anyhow::Context as _;
use clap::Args;
use kept::Kept;
use readings::{CENTRAL, Seeds};
use runs::{Rest, Runs};
use std::path::PathBuf;

/// Reproduces the evaluation of fpgascheduling (S-10) under every reading of its text, and compares the figures.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-sim reproduce --output simulator-traces/docs/reproduction.md\n  \
                  fpga-sim reproduce --trace AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt")]
pub struct Reproduce {
    /// The published trace of 2021 (CSV or zip); the synthetic one if not given.
    #[arg(long, env = "FPGA_SIM_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// File for the document; the standard output if not given.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of seeds, of the workload and of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_SEEDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Number of seeds of the readings that place every request anew, which take ten times as long; all if not given.
    #[arg(long, env = "FPGA_SIM_SLOW_SEEDS", value_parser = clap::value_parser!(u64).range(1..=100))]
    slow_seeds: Option<u64>,
    /// Number of days to simulate, from the start of the trace.
    #[arg(long, env = "FPGA_SIM_DAYS", default_value_t = DAYS)]
    days: f64,
    /// A folder that keeps the outcome of each run, so that an interrupted command continues where it stopped. Use
    /// one folder per trace and per version of this program.
    #[arg(long, env = "FPGA_SIM_KEEP", value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Runs nothing, and shows the kept outcomes.
    #[arg(long, env = "FPGA_SIM_ONLY_KEPT", requires = "keep")]
    only_kept: bool,
    /// Number of runs at a time; as many as there are cores if not given.
    #[arg(long, env = "FPGA_SIM_THREADS")]
    threads: Option<usize>,
}

impl Reproduce {
    /// Runs the command.
    ///
    /// # Errors
    /// If the trace can't be read or the document can't be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let mut runs = Runs::default();
        // The first rendering only collects the runs that the tables need.
        let _ = tables::all(&runs);
        let rest = if self.only_kept { Rest::LeftOut } else { Rest::Run(self.threads) };
        let kept = Kept::new(self.keep.clone())?;
        let slow = self.slow_seeds.unwrap_or(self.seeds).min(self.seeds);
        let seeds = Seeds { all: self.seeds, slow };
        let seeds_of = |changes: &[String]| seeds.of(changes);
        let done = runs.run(CENTRAL, seeds_of, rest, &kept, |seed, changes| self.changes(seed, changes))?;
        let tables = tables::all(&runs);
        let remarks = match &self.trace {
            Some(_) => runs.remarks().join("\n"),
            None => format!(
                "Traces of all tables: synthetic, 1980000 requests in two weeks (statistics of S-9), seeds 1 to {}.",
                self.seeds
            ),
        };
        let but = if slow < self.seeds {
            format!(", where every request is placed anew over {slow}")
        } else {
            String::new()
        };
        let so_far = match done {
            (done, all) if done < all => format!(
                " So far {done} of {all} runs are done: means and intervals are over the seeds that are there, in cells \
                 without an interval over one; what is missing is –."
            ),
            _ => String::new(),
        };
        let text = format!("{remarks}\nMeans over {} seeds{but}.{so_far}\n\n{tables}", self.seeds);
        let Some(path) = &self.output else {
            return Ok(print(&text)?);
        };
        // Keep the text outside the generated part.
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let before = old.split_once(MADE).map_or(INTRODUCTION, |(before, _)| before);
        let after = old.split_once(KEPT).map_or("\n", |(_, after)| after);
        let made = format!("Made by `{}`.\n\n{text}", self.command());
        std::fs::write(path, format!("{before}{MADE}\n{made}{KEPT}{after}"))
            .with_context(|| path.display().to_string())
    }

    fn command(&self) -> String {
        let days = if self.days == DAYS { String::new() } else { format!(" --days {}", self.days) };
        let trace = self
            .trace
            .as_ref()
            .map_or(String::new(), |path| format!(" --trace {}", crate::trace::file::shown(path)));
        let kept = if self.only_kept { " --keep runs --only-kept" } else { "" };
        let slow = self.slow_seeds.map_or(String::new(), |slow| format!(" --slow-seeds {slow}"));
        format!("fpga-sim reproduce --seeds {}{slow}{days}{trace}{kept}", self.seeds)
    }

    /// All changes of one run: seed, days and trace as well as `changes`.
    fn changes(&self, seed: u64, changes: &[String]) -> Vec<String> {
        let mut all =
            vec![format!("seed={seed}"), format!("trace.seed={seed}"), format!("trace.to_day={}", self.days)];
        if let Some(path) = &self.trace {
            all.push("trace.source=azure-2021".to_owned());
            all.push(format!("trace.path={}", path.display()));
        }
        all.extend_from_slice(changes);
        all
    }
}

/// Length of the paper's trace in days.
const DAYS: f64 = 14.0;

/// The lines between which the document is generated; the rest is written by hand.
const MADE: &str = "<!-- Above is written by hand and kept. -->\n";
const KEPT: &str = "<!-- Below is written by hand and kept. -->\n";

const INTRODUCTION: &str = "# S-10 reproduced, reading by reading\n\n\
    The evaluation of Scheufler, *Cloud-Native Scheduling for Serverless FPGAs* (TUM 2023), in this simulator: p 0.5, m 10 ms, \
    r 0.75, 4 slots, 10 ms per reconfiguration. The paper's text leaves choices open; each is a scenario option, and each \
    row below changes the central reading by what its name says. The central reading: applications are placed once, at \
    their first request; requests are served one after the other and never wait; bitstreams stay in their slots until they \
    are evicted; every request draws whether it uses a board; each function has its bitstream; the score for little recent \
    processor use and the extender's are added with equal weight, so that 0-0-0 places by processor use alone.\n\n";

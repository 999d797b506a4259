//! Groups with goals on a modelled board, live and in `fpga-sim`: the same requests, on the scenarios' own files.

mod board;
mod experiment;
mod report;

use anyhow::{Result, ensure};
use board::Board;
use experiment::EXPERIMENTS;
use report::Report;

/// Runs groups with deadlines and throughputs on a modelled board, and compares them with fpga-sim.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench pool goals --runs 1 --faster 5")]
pub(super) struct Args {
    /// How often each experiment runs.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How many times as fast as in the paper everything is: devices, deadlines, control periods. A period of the paper's
    /// experiments is a second, and the broker's shortest 100 ms.
    #[arg(long, default_value_t = 10.0)]
    faster: f64,
}

impl Args {
    /// Runs the experiments and prints what became of each goal.
    ///
    /// # Errors
    /// A prerequisite is missing, a group does not open, or a result is wrong.
    pub async fn run(self) -> Result<()> {
        ensure!((0.1..=10.0).contains(&self.faster), "--faster is between 0.1 and 10");
        let mut report = Report::new(self.faster, self.runs);
        println!("{}", report.head());
        for experiment in EXPERIMENTS {
            let scenario = experiment.scenario()?;
            let simulated = scenario.simulate()?;
            let board = Board::start(&scenario, experiment.margin, self.faster).await?;
            let mut live = Vec::new();
            for _ in 0..self.runs {
                let run = board.play(&scenario).await?;
                eprintln!("{}: {}", experiment.title, run.told);
                live.push(run);
            }
            report.add(&experiment, &scenario, &simulated, &live);
        }
        println!("{report}");
        Ok(())
    }
}

//! BlastFunction's test with several applications (B-11): five functions on three boards that they share, against three
//! functions with a board each. Control plane, scheduler, collectors, device managers and functions are real; the boards
//! are modelled (`fpga-device-manager serve --model`), with the times of the paper's.
//!
//! Each function is an HTTP server in a pod, and a client sends it the paper's number of requests per second.

mod client;
mod group;
mod paper;
mod report;

use crate::modelled::Verdict;
use anyhow::{Context as _, Result};
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use group::Group;
use paper::{Load, UseCase};
use report::Row;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measures five functions on three modelled boards that they share, against three functions with a board each
/// (BlastFunction's tables 6.4, 6.6 and 6.8). About 9 minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fpga-bench b11 --use-cases sobel --loads high --seconds 20")]
pub struct Args {
    /// Time of each measurement, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=300))]
    seconds: u16,
    /// The accelerators.
    #[arg(long, value_delimiter = ',', default_value = "sobel,matmul,alexnet")]
    use_cases: Vec<UseCase>,
    /// The arrivals of the paper's table 6.2.
    #[arg(long, value_delimiter = ',', default_value = "low,medium,high")]
    loads: Vec<Load>,
    /// Who shares which board.
    #[arg(long, value_delimiter = ',', default_value = "shared,scheduled,exclusive")]
    arms: Vec<Arm>,
    /// Connections to each function, and processes in which it serves them. The paper has one: a function gets no request
    /// while it serves another.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    connections: u8,
    /// With `scheduled`: time for which a function gets its requests before the next one is created, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=300))]
    stage_seconds: u16,
    #[command(flatten)]
    verdict: Verdict,
}

/// Who shares which board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arm {
    /// Five functions, placed as in the paper.
    Shared,
    /// Five functions, placed by kube-scheduler one after the other, while those before them work.
    Scheduled,
    /// Three functions, each with a board of its own.
    Exclusive,
}

impl Arm {
    /// Number of functions: the first columns of the paper's table.
    fn functions(self) -> usize {
        match self {
            Self::Shared | Self::Scheduled => paper::FUNCTIONS,
            Self::Exclusive => paper::BOARDS,
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared, placed as in the paper",
            Self::Scheduled => "shared, placed by kube-scheduler",
            Self::Exclusive => "a board each",
        })
    }
}

/// What all groups need.
#[derive(Debug)]
struct Site {
    runtime: Runtime,
    programs: PathBuf,
    bitstreams: PathBuf,
    seconds: u16,
    connections: u8,
    stage: Duration,
}

impl Args {
    /// Measures and prints the tables.
    ///
    /// # Errors
    /// A prerequisite is missing, a part of the cluster fails, a function gives a wrong answer, or the results miss a goal or
    /// show nothing.
    pub async fn run(self) -> Result<()> {
        let runtime = Runtime::from_env()?;
        let site = Site {
            runtime,
            programs: artifacts::functions()?,
            bitstreams: artifacts::bitstreams(runtime)?,
            seconds: self.seconds,
            connections: self.connections,
            stage: Duration::from_secs(self.stage_seconds.into()),
        };
        let groups = self.groups();
        let (begin, mut faults) = (Instant::now(), Vec::new());
        println!("{}", report::head(self.connections));
        for use_case in self.use_cases {
            let mut rows: Vec<Row> = Vec::new();
            for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.use_case == use_case) {
                eprintln!(
                    "[{:>4} s] {} of {}: {use_case}, {}, {} load",
                    begin.elapsed().as_secs(),
                    number + 1,
                    groups.len(),
                    group.arm,
                    group.loads.iter().map(Load::to_string).collect::<Vec<_>>().join(", ")
                );
                let measured = group.run(&site).await;
                rows.extend(measured.with_context(|| format!("{use_case}, {}", group.arm))?);
            }
            let tables = report::Tables { use_case, rows };
            println!("\n{tables}");
            faults.extend(tables.faults());
        }
        self.verdict.judge(&faults)
    }

    /// What runs in a cluster of its own, in this order.
    fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for use_case in self.use_cases.iter().copied() {
            let loads: Vec<Load> =
                self.loads.iter().copied().filter(|load| use_case.arrivals(*load).is_some()).collect();
            if loads.is_empty() {
                continue;
            }
            for arm in self.arms.iter().copied() {
                match arm {
                    // The load decides where functions are placed.
                    Arm::Scheduled => {
                        groups.extend(loads.iter().map(|load| Group { use_case, arm, loads: vec![*load] }));
                    }
                    Arm::Shared | Arm::Exclusive => {
                        groups.push(Group { use_case, arm, loads: loads.clone() });
                    }
                }
            }
        }
        groups
    }
}

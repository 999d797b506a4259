//! `fpga-sim compare`: compares policies with the clairvoyant bound, on a week that was not used for tuning.

mod policies;
mod tables;

use super::grid::run_all;
use crate::outcome::Outcome;
use crate::output::print;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use policies::{BASE, POLICIES, Policy, Table};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Compares policies with the baseline and the clairvoyant bound: tables A (the scheduler alone) and B (with a
/// router).
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-sim compare --week second --output simulator-traces/docs/policies.md"
)]
pub struct Compare {
    /// The published trace of 2021 (CSV or zip); the synthetic one if not given.
    #[arg(long, env = "FPGA_SIM_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The week that is measured: the first for tuning, the second for reporting.
    #[arg(long, env = "FPGA_SIM_WEEK", value_enum, default_value_t = Week::Second)]
    week: Week,
    /// Number of seeds, of the workload and of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_SEEDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Numbers of nodes to simulate.
    #[arg(long, env = "FPGA_SIM_NODES", value_delimiter = ',', default_value = "10,20,40")]
    nodes: Vec<u32>,
    /// Only policies whose name contains this text; baseline and bound are always included.
    #[arg(long, env = "FPGA_SIM_ONLY", value_name = "TEXT")]
    only: Option<String>,
    /// Only policies that were selected on the tuning week.
    #[arg(long, env = "FPGA_SIM_CHOSEN")]
    chosen: bool,
    /// File for the document; the standard output if not given.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Number of runs at a time; as many as there are cores if not given.
    #[arg(long, env = "FPGA_SIM_THREADS")]
    threads: Option<usize>,
}

/// One of the two weeks of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Week {
    /// Days 0 to 7.
    First,
    /// Days 7 to 14; the first week is simulated too, without being measured.
    Second,
}

impl Compare {
    /// Runs the command.
    ///
    /// # Errors
    /// If the trace can't be read or the document can't be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let named =
            |policy: &Policy| self.only.as_ref().is_none_or(|only| policy.name.contains(only.as_str()));
        let wanted =
            |policy: &&Policy| policy.table == Table::All || (policy.chosen || !self.chosen) && named(policy);
        let policies: Vec<&Policy> = POLICIES.iter().filter(wanted).collect();
        let mut runs = Vec::new();
        for nodes in &self.nodes {
            for policy in &policies {
                for seed in 1..=self.seeds {
                    runs.push(self.changes(*nodes, policy, seed));
                }
            }
        }
        let outcomes = run_all(BASE, &runs, self.threads)?;
        let seeds = usize::try_from(self.seeds)?;
        let mut text = String::new();
        let which = match &self.trace {
            Some(path) => format!("Azure 2021 schema, {}", crate::trace::file::shown(path)),
            None => "synthetic (statistics of S-9), one per seed".to_owned(),
        };
        let week = match self.week {
            Week::First => "first week",
            Week::Second => "second week, after the first has warmed everything up",
        };
        let _ = writeln!(
            text,
            "Trace: {which}; {week}; {} seeds; ± is half a 95 % interval, of differences seed by seed.",
            self.seeds
        );
        for (nodes, of_nodes) in self.nodes.iter().zip(outcomes.chunks(policies.len() * seeds)) {
            let by_policy: Vec<&[Outcome]> = of_nodes.chunks(seeds).collect();
            for (table, title) in [(Table::A, "the scheduler alone"), (Table::B, "with a request router")] {
                let _ = writeln!(text, "\n### {table:?}, {title}: {nodes} nodes\n");
                text.push_str(&tables::table(table, &policies, &by_policy).markdown());
            }
        }
        match &self.output {
            None => print(&text)?,
            Some(path) => {
                let old = std::fs::read_to_string(path).unwrap_or_default();
                let (before, after) = old.split_once(BEGIN).unwrap_or((old.as_str(), ""));
                let after = after.split_once(END).map_or("\n", |(_, after)| after);
                std::fs::write(path, format!("{before}{BEGIN}\n{text}\n{END}{after}"))
                    .with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }

    fn changes(&self, nodes: u32, policy: &Policy, seed: u64) -> Vec<String> {
        let mut changes =
            vec![format!("seed={seed}"), format!("trace.seed={seed}"), format!("cluster.nodes={nodes}")];
        match self.week {
            Week::First => changes.push("trace.to_day=7".to_owned()),
            Week::Second => changes.push("measure.warm_up_days=7".to_owned()),
        }
        if let Some(path) = &self.trace {
            changes.push("trace.source=azure-2021".to_owned());
            changes.push(format!("trace.path={}", path.display()));
        }
        changes.extend(policy.changes.iter().map(|change| (*change).to_owned()));
        changes
    }
}

/// The lines between which the tables of a document are replaced.
const BEGIN: &str = "<!-- Made by `fpga-sim compare`. -->";
const END: &str = "<!-- End of what is made. -->";

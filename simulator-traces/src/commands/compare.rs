//! `fpga-sim compare`: policies against the clairvoyant bound, on weeks that nothing was tuned on.

use super::grid::{mean_and_half, run_all};
use crate::outcome::{Outcome, Table};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Compares policies with the baseline and the clairvoyant bound: tables A (the scheduler alone) and B (with a router).
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-sim compare --week second --output simulator-traces/docs/policies.md"
)]
pub struct Compare {
    /// The published trace of 2021 (CSV or zip); the synthetic one if not given.
    #[arg(long, env = "FPGA_SIM_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The week that counts: the first is for tuning, the second for reporting.
    #[arg(long, env = "FPGA_SIM_WEEK", value_enum, default_value_t = Week::Second)]
    week: Week,
    /// Seeds: of the workload, and of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_SEEDS", default_value_t = 5)]
    seeds: u64,
    /// Numbers of nodes.
    #[arg(long, env = "FPGA_SIM_NODES", value_delimiter = ',', default_value = "10,20,40")]
    nodes: Vec<u32>,
    /// Only policies whose name has this in it; baseline and bound are always there.
    #[arg(long, env = "FPGA_SIM_ONLY", value_name = "TEXT")]
    only: Option<String>,
    /// Where to write the document; the standard output if not given.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
    /// How many runs at a time; as many as there are cores if not given.
    #[arg(long, env = "FPGA_SIM_THREADS")]
    threads: Option<usize>,
}

/// A week of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Week {
    /// Days 0 to 7.
    First,
    /// Days 7 to 14; the first is simulated too, and doesn't count.
    Second,
}

/// A policy.
struct Policy {
    table: char,
    name: &'static str,
    changes: &'static [&'static str],
}

const ANY: &str = "routing.reach=any";
const LOADED: &str = "routing.policy=loaded";
const PREDICTED: &str = "slots.eviction=predicted";
const MOVES: &str = "placement.move_minutes=60";
const BASE: &str = "kind = \"placement\"\n[placement]\nweights = \"0-0-0\"\n";

const AWARE: &str = "placement.weights=1-2-2";
const TIES: &str = "placement.others=cpu-usage-in-ties";

const POLICIES: [Policy; 19] = [
    Policy { table: '-', name: "0-0-0", changes: &[] },
    Policy { table: '-', name: "oracle", changes: &[ANY, LOADED, "slots.eviction=clairvoyant"] },
    Policy { table: 'A', name: "1-2-2", changes: &[AWARE] },
    Policy { table: 'A', name: "1-2-2, anti-herd", changes: &[AWARE, "placement.anti_herd=on"] },
    Policy { table: 'A', name: "1-2-2, processor in ties only", changes: &[AWARE, TIES] },
    Policy { table: 'A', name: "loaded instead of recent", changes: &["placement.weights=0-2-2-0-0-1"] },
    Policy { table: 'A', name: "predicted eviction", changes: &[PREDICTED] },
    Policy { table: 'A', name: "same bitstream first", changes: &["slots.queue=same-bitstream"] },
    Policy { table: 'A', name: "moves", changes: &[MOVES] },
    Policy { table: 'A', name: "moves, predicted eviction", changes: &[MOVES, PREDICTED] },
    Policy { table: 'A', name: "moves, predicted eviction, 1-2-2", changes: &[MOVES, PREDICTED, AWARE] },
    Policy { table: 'A', name: "two replicas, no router", changes: &["placement.replicas=2"] },
    Policy { table: 'B', name: "any replica, LRU", changes: &[ANY, LOADED] },
    Policy { table: 'B', name: "any replica, predicted", changes: &[ANY, LOADED, PREDICTED] },
    Policy { table: 'B', name: "2 replicas, LRU", changes: &[LOADED, "placement.replicas=2"] },
    Policy {
        table: 'B',
        name: "2 replicas, predicted",
        changes: &[LOADED, PREDICTED, "placement.replicas=2"],
    },
    Policy {
        table: 'B',
        name: "4 replicas, predicted",
        changes: &[LOADED, PREDICTED, "placement.replicas=4"],
    },
    Policy {
        table: 'B',
        name: "2 replicas, predicted, moves",
        changes: &[LOADED, PREDICTED, MOVES, "placement.replicas=2"],
    },
    Policy {
        table: 'B',
        name: "8 replicas, predicted",
        changes: &[LOADED, PREDICTED, "placement.replicas=8"],
    },
];

impl Compare {
    /// Does it.
    ///
    /// # Errors
    /// If the trace can't be read or the document not be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let wanted = |policy: &&Policy| {
            policy.table == '-' || self.only.as_ref().is_none_or(|only| policy.name.contains(only.as_str()))
        };
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
        let seeds = usize::try_from(self.seeds)?.max(1);
        let mut text = String::new();
        let which = match &self.trace {
            Some(path) => format!("Azure 2021 schema, {}", crate::trace::file::shown(path)),
            None => "synthetic (statistics of S-9), one per seed".to_owned(),
        };
        let week = match self.week {
            Week::First => "first week",
            Week::Second => "second week, after the first has warmed everything up",
        };
        let _ = writeln!(text, "Trace: {which}; {week}; {} seeds; ± is half a 95 % interval.", self.seeds);
        for (nodes, of_nodes) in self.nodes.iter().zip(outcomes.chunks(policies.len() * seeds)) {
            let by_policy: Vec<&[Outcome]> = of_nodes.chunks(seeds).collect();
            for (table, title) in [('A', "the scheduler alone"), ('B', "with a request router")] {
                let _ = writeln!(text, "\n### {table}, {title}: {nodes} nodes\n");
                text.push_str(&rows(table, &policies, &by_policy).markdown());
            }
        }
        match &self.output {
            None => print!("{text}"),
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

/// Between these lines the tables are made.
const BEGIN: &str = "<!-- Made by `fpga-sim compare`. -->";
const END: &str = "<!-- End of what is made. -->";

fn rows(table: char, policies: &[&Policy], outcomes: &[&[Outcome]]) -> Table {
    let columns = [
        "policy",
        "cold starts, % of board requests",
        "against 0-0-0",
        "gap closed",
        "wait mean ms",
        "wait p99 ms",
        "variation of usage",
        "usage median s",
        "usage p95 s",
    ];
    let find = |name: &str| policies.iter().position(|policy| policy.name == name);
    let (baseline, oracle) = (find("0-0-0"), find("oracle"));
    let all = |index: Option<usize>, metric: &str| -> Vec<f64> {
        let outcomes = index.and_then(|index| outcomes.get(index)).copied().unwrap_or_default();
        outcomes.iter().filter_map(|outcome| outcome.metric(metric)).collect()
    };
    let with_width = |values: &[f64], digits: usize| {
        let (mean, half) = mean_and_half(values);
        if half.is_finite() {
            format!("{mean:.digits$} ± {half:.digits$}")
        } else {
            format!("{mean:.digits$}")
        }
    };
    let (cold_of_baseline, cold_of_oracle) = (all(baseline, "cold_starts"), all(oracle, "cold_starts"));
    let shown =
        policies.iter().enumerate().filter(|(_, policy)| policy.table == '-' || policy.table == table);
    let rows = shown.map(|(index, policy)| {
        let index = Some(index);
        let cold = all(index, "cold_starts");
        let percent = |values: Vec<f64>| values.into_iter().map(|value| 100.0 * value).collect::<Vec<_>>();
        let change: Vec<f64> = cold.iter().zip(&cold_of_baseline).map(|(cold, of)| cold / of - 1.0).collect();
        let closed: Vec<f64> = cold
            .iter()
            .zip(cold_of_baseline.iter().zip(&cold_of_oracle))
            .map(|(cold, (baseline, oracle))| (baseline - cold) / (baseline - oracle))
            .collect();
        vec![
            policy.name.to_owned(),
            with_width(&percent(all(index, "cold_share_of_board_requests")), 2),
            format!("{} %", with_width(&percent(change), 1)),
            format!("{} %", with_width(&percent(closed), 0)),
            with_width(&all(index, "wait_mean_ms"), 2),
            with_width(&all(index, "wait_p99_ms"), 1),
            with_width(&all(index, "usage_variation"), 2),
            with_width(&all(index, "usage_median_s"), 2),
            with_width(&all(index, "usage_p95_s"), 1),
        ]
    });
    Table {
        title: String::new(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        rows: rows.collect(),
    }
}

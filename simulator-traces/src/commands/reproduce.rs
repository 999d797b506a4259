//! `fpga-sim reproduce`: the evaluation of the paper (S-10) under each reading of its text, beside its own figures.

use super::grid::{mean_and_half, run_all};
use crate::outcome::{Outcome, Table};
use anyhow::Context as _;
use clap::Args;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Reproduces the evaluation of fpgascheduling (S-10): every reading of its text, beside its figures.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-sim reproduce --output simulator-traces/docs/reproduction.md\n  \
                  fpga-sim reproduce --trace AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt")]
pub struct Reproduce {
    /// The published trace of 2021 (CSV or zip); the synthetic one if not given.
    #[arg(long, env = "FPGA_SIM_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Where to write the document; the standard output if not given.
    #[arg(long, env = "FPGA_SIM_OUTPUT", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Seeds: of the workload, and of the synthetic trace.
    #[arg(long, env = "FPGA_SIM_SEEDS", default_value_t = 3)]
    seeds: u64,
    /// Only so many days from the start.
    #[arg(long, env = "FPGA_SIM_DAYS", default_value_t = 14.0)]
    days: f64,
    /// How many runs at a time; as many as there are cores if not given.
    #[arg(long, env = "FPGA_SIM_THREADS")]
    threads: Option<usize>,
}

/// A reading of the paper's text.
struct Reading {
    name: &'static str,
    means: &'static str,
    changes: &'static [&'static str],
}

/// What all readings share: applications are placed once, requests are served one after the other, bitstreams stay, every
/// request draws whether it uses a board, each function has a bitstream, the processor's score is added to the extender's,
/// nodes are looked at every 30 minutes.
const CENTRAL: &str = "kind = \"placement\"\n[placement]\nunit = \"application\"\n[slots]\nrequests = \"serial\"\n\
                       [measure]\nsample_s = 1800\n";

const READINGS: [Reading; 13] = [
    Reading { name: "central", means: "as described above", changes: &[] },
    Reading {
        name: "functions",
        means: "functions are placed, not applications",
        changes: &["placement.unit=function"],
    },
    Reading {
        name: "each request",
        means: "every request is placed anew (first half day only: each request is a decision)",
        changes: &["placement.lifetime=request", "trace.to_day=0.5"],
    },
    Reading {
        name: "each request, boards alone",
        means: "the same, the processor's score only tells equal nodes apart",
        changes: &["placement.lifetime=request", "trace.to_day=0.5", "placement.others=cpu-usage-in-ties"],
    },
    Reading {
        name: "idle 10 min",
        means: "an application is placed anew after 10 idle minutes",
        changes: &["placement.lifetime=idle"],
    },
    Reading {
        name: "idle 1 min",
        means: "an application is placed anew after one idle minute",
        changes: &["placement.lifetime=idle", "placement.idle_s=60"],
    },
    Reading {
        name: "boards alone",
        means: "the processor's score only tells equal nodes apart",
        changes: &["placement.others=cpu-usage-in-ties"],
    },
    Reading {
        name: "slots are emptied",
        means: "a bitstream goes when its request ends",
        changes: &["slots.after_use=goes"],
    },
    Reading {
        name: "concurrent",
        means: "requests overlap and wait for slots",
        changes: &["slots.requests=concurrent"],
    },
    Reading {
        name: "p of functions",
        means: "a function uses boards always or never",
        changes: &["workload.p_of=functions"],
    },
    Reading {
        name: "p of applications",
        means: "an application uses boards always or never",
        changes: &["workload.p_of=applications"],
    },
    Reading {
        name: "shared bitstreams",
        means: "four functions share a bitstream on average",
        changes: &["workload.functions_per_bitstream=4"],
    },
    Reading {
        name: "bitstream per application",
        means: "all functions of an application share one",
        changes: &["workload.bitstream_of=application"],
    },
];

/// Nodes, then reconfigurations per node and cold starts in per cent, baseline and aware (S-10).
const PAPER: [(u32, f64, f64, f64, f64); 3] = [
    (10, 50_293.5, 40_899.5, 25.51, 20.69),
    (20, 26_146.0, 21_158.5, 26.71, 21.39),
    (40, 13_899.5, 11_169.0, 27.57, 22.60),
];

/// Weights at 10 nodes: median usage in seconds and cold starts in per cent (S-10).
const PAPER_WEIGHTS: [(&str, f64, f64); 4] =
    [("0-0-0", 3.18, 25.51), ("1-1-1", 3.07, 21.10), ("1-2-2", 4.90, 20.69), ("4-1-1", 2.33, 19.42)];

/// Figures 6.3 and 6.4: FPGA minus CPU utilisation in seconds, by p (rows) and r (columns), from 0.25 and 0.25 on.
const PAPER_GRID: [(f64, [[f64; 4]; 4]); 2] = [
    (
        10.0,
        [
            [0.14, 1.23, 3.80, 8.09],
            [0.84, 3.09, 8.27, 17.16],
            [0.36, 3.07, 9.09, 24.23],
            [10.37, 21.79, 30.48, 28.23],
        ],
    ),
    (
        100.0,
        [
            [0.09, 0.77, 2.88, 6.50],
            [0.65, 2.09, 6.09, 14.62],
            [0.15, 1.66, 6.94, 19.73],
            [0.59, 2.15, 6.52, 3.53],
        ],
    ),
];

impl Reproduce {
    /// Does it.
    ///
    /// # Errors
    /// If the trace can't be read or the document not be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        self.readings(&mut text)?;
        self.weights(&mut text)?;
        self.grid(&mut text)?;
        match &self.output {
            Some(path) => {
                let mut document = format!("{INTRODUCTION}\nMade by `{}`.\n\n", self.command());
                document.push_str(&text);
                // What was written by hand below the line stays.
                let old = std::fs::read_to_string(path).unwrap_or_default();
                let kept = old.split_once(KEPT).map_or("\n", |(_, kept)| kept);
                document.push_str(KEPT);
                document.push_str(kept);
                std::fs::write(path, document).with_context(|| path.display().to_string())
            }
            None => {
                print!("{text}");
                Ok(())
            }
        }
    }

    fn command(&self) -> String {
        let trace = self
            .trace
            .as_ref()
            .map_or(String::new(), |path| format!(" --trace {}", crate::trace::file::shown(path)));
        format!("fpga-sim reproduce --seeds {} --days {}{trace}", self.seeds, self.days)
    }

    /// The changes of one run.
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

    /// The outcomes of each variant, one per seed.
    fn outcomes(&self, variants: &[Vec<String>]) -> anyhow::Result<Vec<Vec<Outcome>>> {
        let runs: Vec<Vec<String>> = variants
            .iter()
            .flat_map(|changes| (1..=self.seeds).map(|seed| self.changes(seed, changes)))
            .collect();
        let outcomes = run_all(CENTRAL, &runs, self.threads)?;
        let seeds = usize::try_from(self.seeds)?.max(1);
        Ok(outcomes.chunks(seeds).map(<[Outcome]>::to_vec).collect())
    }

    fn readings(&self, text: &mut String) -> anyhow::Result<()> {
        let mut variants = Vec::new();
        for reading in &READINGS {
            for (nodes, ..) in PAPER {
                for weights in ["0-0-0", "1-2-2"] {
                    let mut changes: Vec<String> =
                        reading.changes.iter().map(|change| (*change).to_owned()).collect();
                    changes.push(format!("cluster.nodes={nodes}"));
                    changes.push(format!("placement.weights={weights}"));
                    variants.push(changes);
                }
            }
        }
        let outcomes = self.outcomes(&variants)?;
        if let Some(outcome) = outcomes.first().and_then(|seeds| seeds.first()) {
            for remark in &outcome.remarks {
                let _ = writeln!(text, "{remark}");
            }
            let _ = writeln!(text, "Means over {} seeds.\n", self.seeds);
        }
        text.push_str("## What each reading means\n\n");
        let rows = READINGS.iter().map(|reading| vec![reading.name.to_owned(), reading.means.to_owned()]);
        let columns = vec!["reading".to_owned(), "what it means".to_owned()];
        text.push_str(&Table { title: String::new(), columns, rows: rows.collect() }.markdown());

        text.push_str("\n## Cold starts, share of all requests (Table 6.2)\n\n");
        text.push_str(
            "0-0-0 → 1-2-2 in per cent, and the change of the mean with its 95 % interval over seeds. \"Direction\": fewer \
             cold starts at all three sizes. \"Size\": the baseline within a quarter of the paper's at all sizes, and the \
             reduction between 10 and 30 per cent. \"Grows\": the baseline's share grows with the number of nodes, as the \
             paper's does.\n\n",
        );
        let mut rows = vec![paper_row()];
        let mut other = Vec::new();
        for (reading, of_reading) in READINGS.iter().zip(outcomes.chunks(2 * PAPER.len())) {
            rows.push(cold_row(reading, of_reading));
            other.push(other_row(reading, of_reading));
        }
        let columns = ["reading", "10 nodes", "20 nodes", "40 nodes", "direction", "size", "grows"];
        text.push_str(&table(&columns, rows).markdown());
        text.push_str("\n## Reconfigurations, usage and balance at 10 nodes (Tables 6.1 to 6.3)\n\n");
        text.push_str(
            "0-0-0 → 1-2-2. Reconfigurations: median over nodes. Usage: distribution over time of the median over nodes of \
             the 5-minute window. Variation: coefficient over nodes, mean over time.\n\n",
        );
        let columns = [
            "reading",
            "reconfigurations per node",
            "usage median s",
            "usage mean s",
            "usage p95 s",
            "usage p99 s",
            "variation of usage",
            "variation of reconfiguration time",
        ];
        other.insert(
            0,
            [
                "**paper**",
                "50293.5 → 40899.5",
                "3.18 → 4.58",
                "26.70 → 30.78",
                "78.82 → 90.63",
                "351.02 → 323.18",
                "1.35 → 1.07",
                "0.94 → 0.52",
            ]
            .map(str::to_owned)
            .to_vec(),
        );
        text.push_str(&table(&columns, other).markdown());
        Ok(())
    }

    fn weights(&self, text: &mut String) -> anyhow::Result<()> {
        text.push_str("\n## Weights at 10 nodes (Figure 6.7)\n\n");
        text.push_str("Median usage in seconds and cold starts in per cent of all requests.\n\n");
        let readings: Vec<&Reading> =
            READINGS.iter().filter(|reading| WEIGHTED.contains(&reading.name)).collect();
        let mut variants = Vec::new();
        for reading in &readings {
            for (weights, ..) in PAPER_WEIGHTS {
                let mut changes: Vec<String> =
                    reading.changes.iter().map(|change| (*change).to_owned()).collect();
                changes.push(format!("placement.weights={weights}"));
                variants.push(changes);
            }
        }
        let outcomes = self.outcomes(&variants)?;
        let mut rows = vec![
            std::iter::once("**paper**".to_owned())
                .chain(PAPER_WEIGHTS.iter().map(|(_, usage, cold)| format!("{usage:.2}; {cold:.2}")))
                .collect::<Vec<_>>(),
        ];
        for (reading, of_reading) in readings.iter().zip(outcomes.chunks(PAPER_WEIGHTS.len())) {
            let cells = of_reading.iter().map(|seeds| {
                format!(
                    "{:.2}; {:.2}",
                    mean(seeds, "usage_median_s"),
                    100.0 * mean(seeds, "cold_share_of_all")
                )
            });
            rows.push(std::iter::once(reading.name.to_owned()).chain(cells).collect());
        }
        let columns: Vec<&str> =
            std::iter::once("reading").chain(PAPER_WEIGHTS.iter().map(|(weights, ..)| *weights)).collect();
        text.push_str(&table(&columns, rows).markdown());
        Ok(())
    }

    fn grid(&self, text: &mut String) -> anyhow::Result<()> {
        text.push_str("\n## FPGA minus CPU utilisation by p and r (Figures 6.3 and 6.4)\n\n");
        text.push_str(
            "Seconds, ours / the paper's: mean over time of the median over nodes of the board's usage in the window, less \
             the same of the processor's. Central reading, baseline, 10 nodes, first seed.\n",
        );
        let shares = ["0.25", "0.5", "0.75", "1"];
        for (m, paper) in PAPER_GRID {
            let mut runs = Vec::new();
            for p in shares {
                for r in shares {
                    let changes = [
                        format!("workload.m_ms={m}"),
                        format!("workload.p={p}"),
                        format!("workload.r={r}"),
                        "placement.weights=0-0-0".to_owned(),
                    ];
                    runs.push(self.changes(1, &changes));
                }
            }
            let outcomes = run_all(CENTRAL, &runs, self.threads)?;
            let rows = outcomes.chunks(shares.len()).zip(shares).zip(paper).map(|((of_p, p), paper)| {
                let cells = of_p.iter().zip(paper).map(|(outcome, paper)| {
                    format!("{:.2} / {paper:.2}", outcome.metric("fpga_minus_cpu_mean_s").unwrap_or(f64::NAN))
                });
                std::iter::once(format!("p = {p}")).chain(cells).collect()
            });
            let columns: Vec<String> =
                std::iter::once(String::new()).chain(shares.iter().map(|r| format!("r = {r}"))).collect();
            let _ = writeln!(text, "\nm = {m} ms:\n");
            text.push_str(&Table { title: String::new(), columns, rows: rows.collect() }.markdown());
        }
        Ok(())
    }
}

/// Readings for which all weights are shown.
const WEIGHTED: [&str; 5] = ["central", "functions", "each request", "idle 10 min", "boards alone"];

/// Above this line the document is made, below it is written.
const KEPT: &str = "<!-- Below is written by hand and kept. -->\n";

const INTRODUCTION: &str = "# S-10 reproduced, reading by reading\n\n\
    The evaluation of Scheufler, *Cloud-Native Scheduling for Serverless FPGAs* (TUM 2023), in this simulator: p 0.5, m 10 ms, \
    r 0.75, 4 slots, 10 ms per reconfiguration. The paper's text leaves choices open; each is a scenario option, and each \
    row below changes the central reading by what its name says. The central reading: applications are placed once, at \
    their first request; requests are served one after the other and never wait; bitstreams stay in their slots until they \
    are evicted; every request draws whether it uses a board; each function has its bitstream; the score for little recent \
    processor use and the extender's are added with equal weight, so that 0-0-0 places by processor use alone.\n";

fn table(columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { title: String::new(), columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows }
}

fn values(seeds: &[Outcome], metric: &str) -> Vec<f64> {
    seeds.iter().filter_map(|outcome| outcome.metric(metric)).collect()
}

fn mean(seeds: &[Outcome], metric: &str) -> f64 {
    mean_and_half(&values(seeds, metric)).0
}

fn paper_row() -> Vec<String> {
    let cells = PAPER.iter().map(|(_, _, _, baseline, aware)| {
        format!("{baseline:.2} → {aware:.2} ({:+.1} %)", (aware / baseline - 1.0) * 100.0)
    });
    let yes = || "yes".to_owned();
    std::iter::once("**paper**".to_owned()).chain(cells).chain([yes(), yes(), yes()]).collect()
}

fn cold_row(reading: &Reading, outcomes: &[Vec<Outcome>]) -> Vec<String> {
    let mut row = vec![reading.name.to_owned()];
    let (mut fewer, mut sized, mut shares) = (true, true, Vec::new());
    for (pair, (_, _, _, paper, _)) in outcomes.chunks(2).zip(PAPER) {
        let [baseline, aware] = pair else { continue };
        let (baseline, aware) = (values(baseline, "cold_share_of_all"), values(aware, "cold_share_of_all"));
        let changes: Vec<f64> =
            baseline.iter().zip(&aware).map(|(baseline, aware)| (aware / baseline - 1.0) * 100.0).collect();
        let (change, half) = mean_and_half(&changes);
        let share = mean_and_half(&baseline).0 * 100.0;
        let width = if half.is_finite() { format!(" ± {half:.1}") } else { String::new() };
        row.push(format!("{share:.2} → {:.2} ({change:+.1}{width} %)", mean_and_half(&aware).0 * 100.0));
        fewer &= change < 0.0;
        sized &= (share / paper - 1.0).abs() <= 0.25 && (-30.0..=-10.0).contains(&change);
        shares.push(share);
    }
    let grows = shares.windows(2).all(|pair| pair[0] < pair[1]);
    row.extend([fewer, sized, grows].map(|is| if is { "yes".to_owned() } else { "no".to_owned() }));
    row
}

fn other_row(reading: &Reading, outcomes: &[Vec<Outcome>]) -> Vec<String> {
    let mut row = vec![reading.name.to_owned()];
    let (Some(baseline), Some(aware)) = (outcomes.first(), outcomes.get(1)) else { return row };
    for (metric, digits) in [
        ("reconfigurations_per_node_median", 1),
        ("usage_median_s", 2),
        ("usage_mean_s", 2),
        ("usage_p95_s", 2),
        ("usage_p99_s", 2),
        ("usage_variation", 2),
        ("reconfiguration_variation", 2),
    ] {
        row.push(format!("{:.digits$} → {:.digits$}", mean(baseline, metric), mean(aware, metric)));
    }
    row
}

//! `fpga-sim replay-cluster`: repeats the decisions that an extender recorded on a live cluster, under other rules.
//!
//! Each decision is independent: the effect of another choice on later states is not simulated.

use crate::outcome::{Format, Outcome, Table};
use crate::output::print;
use anyhow::{Context as _, ensure};
use clap::Args;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::record::{RecordedAnswer, RecordingDecoder, Verb};
use fpga_core::score::Weights;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// Longest line of a recording in bytes; a decision over 5,000 nodes is far shorter.
const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Answers "what if the weights were …" from what an extender recorded with `--record`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fpga-sim replay-cluster --recording decisions.jsonl --weights 4-1-1")]
pub struct ReplayCluster {
    /// The recording.
    #[arg(long, env = "FPGA_SIM_RECORDING", value_name = "FILE")]
    recording: PathBuf,
    /// Weights to decide by; the recorded ones if not given.
    #[arg(long, env = "FPGA_SIM_WEIGHTS")]
    weights: Option<Weights>,
    /// Whether pods that were just placed count, `on` or `off`; as recorded if not given.
    #[arg(long, env = "FPGA_SIM_ANTI_HERD")]
    anti_herd: Option<AntiHerd>,
    /// Format of the outcome.
    #[arg(long, env = "FPGA_SIM_FORMAT", value_enum, default_value_t = Format::Markdown)]
    format: Format,
}

/// For each node the number of decisions in which it was best, as recorded and by the other rules. Of n best nodes
/// each counts 1/n.
type Bests = BTreeMap<String, (f64, f64)>;

impl ReplayCluster {
    /// Runs the command.
    ///
    /// # Errors
    /// If the recording can't be read.
    pub fn run(&self) -> anyhow::Result<()> {
        Ok(print(&self.outcome(&self.recording)?.render(self.format)?)?)
    }

    fn outcome(&self, path: &Path) -> anyhow::Result<Outcome> {
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        let mut lines = BufReader::new(file);
        let mut decoder = RecordingDecoder::default();
        let (mut line, mut number) = (Vec::new(), 0_u64);
        let (mut decisions, mut scores_changed, mut best_changed) = (0_u64, 0_u64, 0_u64);
        let mut bests = Bests::new();
        loop {
            line.clear();
            if (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            number += 1;
            let text = std::str::from_utf8(&line).with_context(|| format!("line {number} is no text"))?;
            if text.trim().is_empty() {
                continue;
            }
            let read = decoder.read(text).with_context(|| format!("line {number} of {}", path.display()))?;
            let Some(recorded) = read.filter(|recorded| recorded.asked.verb == Verb::Prioritize) else {
                continue;
            };
            let RecordedAnswer::Scores(before) = &recorded.answer else { continue };
            let RecordedAnswer::Scores(after) = recorded.decide(&self.rules(recorded.rules)).answer() else {
                continue;
            };
            decisions += 1;
            scores_changed += u64::from(*before != after);
            let (best_before, best_after) = (best(before), best(&after));
            best_changed += u64::from(best_before != best_after);
            let mut count = |bests_of: &[usize], of: fn(&mut (f64, f64)) -> &mut f64| {
                for index in bests_of {
                    if let Some(name) = recorded.names.get(*index) {
                        *of(bests.entry(name.clone()).or_default()) += 1.0 / bests_of.len() as f64;
                    }
                }
            };
            count(&best_before, |node| &mut node.0);
            count(&best_after, |node| &mut node.1);
        }
        ensure!(
            decisions > 0,
            "{} has no decision on scores; record with the extender's --record while pods are scheduled",
            path.display()
        );
        let mut outcome = Outcome::default();
        outcome.remarks.push(format!(
            "Recording: {}. Each decision alone: what a different choice would have led to is not simulated.",
            crate::trace::file::shown(path)
        ));
        outcome.push("decisions", decisions as f64);
        outcome.push("decisions_with_other_scores", scores_changed as f64);
        outcome.push("decisions_with_other_best_nodes", best_changed as f64);
        let rows = bests
            .into_iter()
            .map(|(name, (before, after))| vec![name, format!("{before:.1}"), format!("{after:.1}")]);
        outcome.tables.push(Table {
            title: "How often a node was best; of several best ones each counts by its share".to_owned(),
            columns: ["node", "then", "by these rules"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
        });
        Ok(outcome)
    }

    fn rules(&self, then: &DecisionRules) -> DecisionRules {
        DecisionRules {
            weights: self.weights.unwrap_or(then.weights),
            anti_herd: self.anti_herd.unwrap_or(then.anti_herd),
            ..*then
        }
    }
}

fn best(scores: &[u32]) -> Vec<usize> {
    let most = scores.iter().max();
    (0..scores.len()).filter(|index| scores.get(*index) == most).collect()
}

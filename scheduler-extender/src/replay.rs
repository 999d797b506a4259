//! `fpga-scheduler-extender replay FILE`: repeats the decisions of a recording by the same functions.
//!
//! By the recorded rules the results must be equal to the last bit; otherwise the program that recorded differs from
//! this one, and the difference is shown. With other rules, the replay shows which pods would have gone elsewhere,
//! each in its recorded situation; for the consequences of that, use the simulator.

mod reader;
mod report;
#[cfg(test)]
mod tests;

use crate::config::file;
use crate::settings::Settings;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::matching::UnlabelledNodes;
use fpga_core::record::{Decided, Recorded, RecordingDecoder};
use fpga_core::score::{MaxScore, Weights};
use fpga_core::staleness::StalePolicy;
use reader::Reader;
use report::Report;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

/// Examples for `--help`.
pub const EXAMPLES: &str = "Examples:
  fpga-scheduler-extender --record /var/lib/fpga/decisions.jsonl    # record
  fpga-scheduler-extender replay decisions.jsonl.1 decisions.jsonl  # 1 if a decision comes out otherwise
  fpga-scheduler-extender replay decisions.jsonl --weights 4-1-1    # which pods would have gone elsewhere
  fpga-scheduler-extender replay decisions.jsonl --pod default/sobel-7 -o json

Exit codes: 0 all decisions came out as they were recorded; 1 one came out otherwise, or an error.";

/// The recordings to replay, and the rules.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Recordings, the older ones first.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Replay the decisions for one pod only, as NAMESPACE/NAME.
    #[arg(long, env = "FPGA_REPLAY_POD", value_name = "NAMESPACE/NAME", value_parser = pod)]
    pod: Option<Pod>,
    /// Format of the result.
    #[arg(short, long, env = "FPGA_REPLAY_OUTPUT", value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    what_if: WhatIf,
}

/// Rules that override the recorded ones. Rules that are not given stay as recorded.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "What if (what is not given stays as recorded)")]
struct WhatIf {
    /// Weights in short form, for example 4-1-1.
    #[arg(long, env = "FPGA_REPLAY_WEIGHTS")]
    weights: Option<Weights>,
    /// Configuration file as for serve; the other flags override it.
    #[arg(long, env = "FPGA_REPLAY_CONFIG", value_name = "FILE", value_parser = config)]
    config: Option<Settings>,
    /// Greatest score.
    #[arg(long, env = "FPGA_REPLAY_MAX_SCORE")]
    max_score: Option<MaxScore>,
    /// Stale policy of every signal, for nodes without fresh state: neutral, penalise or exclude.
    #[arg(long, env = "FPGA_REPLAY_STALE")]
    stale: Option<StalePolicy>,
    /// Treatment of nodes with neither FPGA state nor label: reject or pass.
    #[arg(long, env = "FPGA_REPLAY_UNLABELLED_NODES")]
    unlabelled_nodes: Option<UnlabelledNodes>,
    /// Whether expected load counts: on or off. On has no effect on decisions that were recorded without expected
    /// load.
    #[arg(long, env = "FPGA_REPLAY_ANTI_HERD")]
    anti_herd: Option<AntiHerd>,
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Table for people.
    Table,
    /// JSON for programs.
    Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    namespace: String,
    name: String,
}

impl ReplayArgs {
    /// Replays the recordings and writes the result to standard output.
    ///
    /// # Errors
    /// A file can't be read, or a result differs from the recorded one.
    pub fn run(&self) -> Result<()> {
        self.replay(&mut std::io::stdout().lock())
    }

    fn replay(&self, out: &mut impl Write) -> Result<()> {
        let mut report = Report::default();
        for path in &self.files {
            let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
            self.read(path, BufReader::new(file), &mut report)?;
        }
        match self.output {
            Output::Table => report.write_table(out, self.what_if.is_any())?,
            Output::Json => report.write_json(out, self.what_if.is_any())?,
        }
        out.flush()?;
        if report.decisions() == 0 {
            let of_pod = self.pod.as_ref().map_or_else(String::new, |pod| format!(" for pod {}", pod.text()));
            bail!("there is no decision{of_pod} in the recording");
        }
        match report.differences() {
            0 => Ok(()),
            n => bail!("{n} of {} decisions came out otherwise than they were recorded", report.decisions()),
        }
    }

    fn read(&self, path: &Path, file: BufReader<File>, report: &mut Report) -> Result<()> {
        let mut decoder = RecordingDecoder::default();
        let mut reader = Reader::new(file);
        while let Some(line) = reader.next().with_context(|| format!("can't read {}", path.display()))? {
            let (number, is_whole) = (line.number, line.is_whole);
            match decoder.read(line.text) {
                Ok(recorded) => {
                    let Some(recorded) = recorded.filter(|recorded| self.wants(recorded)) else { continue };
                    let again = recorded.decide(recorded.rules);
                    let otherwise = self.what_if.is_any().then(|| self.otherwise(&recorded));
                    report.add(&recorded, &again, otherwise.as_ref());
                }
                // A program that was killed while writing leaves half a line at the end.
                Err(_) if !is_whole => report.cut_off(),
                Err(error) => bail!("{}, line {number}: {error}", path.display()),
            }
        }
        Ok(())
    }

    fn wants(&self, recorded: &Recorded<'_>) -> bool {
        self.pod
            .as_ref()
            .is_none_or(|pod| pod.namespace == recorded.asked.namespace && pod.name == recorded.asked.pod)
    }

    fn otherwise(&self, recorded: &Recorded<'_>) -> Decided {
        recorded.decide(&self.what_if.over(recorded.rules))
    }
}

impl WhatIf {
    fn is_any(&self) -> bool {
        let Self { weights, config, max_score, stale, unlabelled_nodes, anti_herd } = self;
        weights.is_some()
            || config.is_some()
            || max_score.is_some()
            || stale.is_some()
            || unlabelled_nodes.is_some()
            || anti_herd.is_some()
    }

    /// The recorded `rules`, overridden by those that are given.
    fn over(&self, rules: &DecisionRules) -> DecisionRules {
        let nothing = Settings::default();
        let config = self.config.as_ref().unwrap_or(&nothing);
        let weights = config.weights.zip(rules.weights.per_signal());
        // All weights are valid by themselves, so that the combination is valid.
        let configured = Weights::of(weights.map(|(given, recorded)| given.unwrap_or(recorded)));
        let stale = config.stale.zip(rules.stale).map(|(given, recorded)| given.unwrap_or(recorded));
        DecisionRules {
            weights: self.weights.unwrap_or(configured.unwrap_or(rules.weights)),
            max_score: self.max_score.or(config.max_score).unwrap_or(rules.max_score),
            stale: self.stale.map_or(stale, |policy| stale.map(|_| policy)),
            unlabelled: self.unlabelled_nodes.or(config.unlabelled).unwrap_or(rules.unlabelled),
            anti_herd: self.anti_herd.or(config.anti_herd).unwrap_or(rules.anti_herd),
        }
    }
}

impl Pod {
    fn text(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn config(path: &str) -> Result<Settings, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    file::parse(&text).map_err(|problem| problem.at(Path::new(path)))
}

fn pod(text: &str) -> Result<Pod, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Pod { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("write it as NAMESPACE/NAME, for example default/sobel-7".to_owned()),
    }
}

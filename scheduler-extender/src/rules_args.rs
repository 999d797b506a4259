//! The flags of the rules of decisions. A flag that is absent leaves the setting to the file, or else to the default.

use crate::clock::Moment;
use crate::config::watch::{self, FileWatch};
use crate::config::{Config, file};
use crate::settings::{SchedulerWeight, Settings};
use anyhow::{Context as _, Result, anyhow};
use fpga_core::decide::AntiHerd;
use fpga_core::matching::UnlabelledNodes;
use fpga_core::score::{MaxScore, PerSignal, Weights};
use fpga_core::staleness::StalePolicy;
use std::path::PathBuf;

/// The precedence of settings, for `--help`.
pub const PRECEDENCE: &str = "Which setting wins:
  1. a flag, or else its FPGA_* variable (--usage-weight and the like before --weights);
  2. the file of --config;
  3. the default.
  The file is looked at every second. One that can't be understood ends the program at its start; later it changes nothing:
  what was in force stays, fpga_extender_config_valid is 0, and an event on the pod says what is wrong in which line.
  GET /config shows what is in force, and what of it flags and file have said. In the file, all optional:
    weights: 1-2-2              # or by name: {locality: 1, usage: 2, reconfiguration: 2, freeSlots: 0, queue: 0, loaded: 0}
    maxScore: 10
    staleNodes: penalise        # or by name: {usage: neutral}
    unlabelledNodes: reject
    antiHerd: on
    schedulerWeight: 10
    bitstreams:                 # where which is valid; no flag says this
      unlisted: accept          # or reject
      valid:
        - {name: sobel, boards: [{vendor: intel, board: a10, shell: \"1.2\"}]}";

/// The rules of decisions.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Decisions")]
pub struct RulesArgs {
    /// YAML file with the settings of this section, read again when it changes; see below.
    #[arg(long, env = "FPGA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Weights of locality, usage and reconfiguration in short form, optionally followed by those of free slots,
    /// queue and loaded [default: 1-2-2].
    #[arg(long, env = "FPGA_WEIGHTS", value_parser = short_form)]
    weights: Option<ShortForm>,
    /// Weight of bitstream locality; overrides --weights.
    #[arg(long, env = "FPGA_LOCALITY_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    locality_weight: Option<f64>,
    /// Weight of recent usage; overrides --weights.
    #[arg(long, env = "FPGA_USAGE_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    usage_weight: Option<f64>,
    /// Weight of recent reconfiguration time; overrides --weights.
    #[arg(long, env = "FPGA_RECONFIGURATION_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    reconfiguration_weight: Option<f64>,
    /// Weight of empty slots, the more the better [default: 0].
    #[arg(long, env = "FPGA_FREE_SLOTS_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    free_slots_weight: Option<f64>,
    /// Weight of tasks that wait for a slot, the fewer the better [default: 0].
    #[arg(long, env = "FPGA_QUEUE_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    queue_weight: Option<f64>,
    /// Weight of the pod's bitstreams being in slots now; locality also counts recently used ones [default: 0].
    #[arg(long, env = "FPGA_LOADED_WEIGHT", value_name = "NUMBER", allow_negative_numbers = true)]
    loaded_weight: Option<f64>,
    /// Greatest score; 10 is kube-scheduler's convention, a greater one has finer steps [default: 10].
    #[arg(long, env = "FPGA_MAX_SCORE")]
    max_score: Option<MaxScore>,
    /// Value of the usage signal on a node without fresh state: neutral (0.5), penalise (0) or exclude (the node is
    /// rejected) [default: penalise].
    #[arg(long, env = "FPGA_STALE_USAGE")]
    stale_usage: Option<StalePolicy>,
    /// Value of the reconfiguration signal on a node without fresh state, as for --stale-usage.
    #[arg(long, env = "FPGA_STALE_RECONFIGURATION")]
    stale_reconfiguration: Option<StalePolicy>,
    /// Value of the locality signal on a node without fresh state, as for --stale-usage.
    #[arg(long, env = "FPGA_STALE_LOCALITY")]
    stale_locality: Option<StalePolicy>,
    /// Value of the free slots signal on a node without fresh state, as for --stale-usage.
    #[arg(long, env = "FPGA_STALE_FREE_SLOTS")]
    stale_free_slots: Option<StalePolicy>,
    /// Value of the queue signal on a node without fresh state, as for --stale-usage.
    #[arg(long, env = "FPGA_STALE_QUEUE")]
    stale_queue: Option<StalePolicy>,
    /// Value of the loaded signal on a node without fresh state, as for --stale-usage.
    #[arg(long, env = "FPGA_STALE_LOADED")]
    stale_loaded: Option<StalePolicy>,
    /// Treatment of nodes with neither FPGA state nor label: reject or pass [default: reject].
    #[arg(long, env = "FPGA_UNLABELLED_NODES")]
    unlabelled_nodes: Option<UnlabelledNodes>,
    /// Whether pods that were just placed count towards the usage of their nodes before they are measured: on or off
    /// [default: on].
    #[arg(long, env = "FPGA_ANTI_HERD")]
    anti_herd: Option<AntiHerd>,
    /// The extender's `weight` in kube-scheduler's configuration, from which /explain computes how far other plugins
    /// can outvote the extender [default: 10].
    #[arg(long, env = "FPGA_SCHEDULER_WEIGHT")]
    scheduler_weight: Option<SchedulerWeight>,
}

/// Weights in short form; those that the text leaves out are `None`.
#[derive(Debug, Clone, Copy)]
struct ShortForm(PerSignal<Option<f64>>);

fn short_form(text: &str) -> Result<ShortForm, fpga_core::score::InvalidWeights> {
    text.parse::<Weights>().map(|weights| ShortForm(file::short_form(weights, text)))
}

impl RulesArgs {
    /// The settings of the flags.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let single = PerSignal {
            locality: self.locality_weight,
            usage: self.usage_weight,
            reconfiguration: self.reconfiguration_weight,
            free_slots: self.free_slots_weight,
            queue: self.queue_weight,
            loaded: self.loaded_weight,
        };
        let short = self.weights.map_or_else(PerSignal::default, |ShortForm(weights)| weights);
        Settings {
            weights: single.zip(short).map(|(single, short)| single.or(short)),
            max_score: self.max_score,
            stale: PerSignal {
                locality: self.stale_locality,
                usage: self.stale_usage,
                reconfiguration: self.stale_reconfiguration,
                free_slots: self.stale_free_slots,
                queue: self.stale_queue,
                loaded: self.stale_loaded,
            },
            unlabelled: self.unlabelled_nodes,
            anti_herd: self.anti_herd,
            scheduler_weight: self.scheduler_weight,
            bitstreams: None,
        }
    }

    /// The configuration in force by flags and file, and the watch on the file if there is one.
    ///
    /// # Errors
    /// A flag or the file is invalid, or the file can't be read.
    pub async fn config(&self, at: Moment) -> Result<(Config, Option<FileWatch>)> {
        let flags = self.settings();
        let Some(path) = &self.config else {
            let config = Config::of_flags(flags).map_err(|problem| anyhow!(problem.message))?;
            return Ok((config, None));
        };
        let text =
            watch::read(path).await.with_context(|| format!("can't read --config {}", path.display()))?;
        let config =
            Config::of_file(flags, path, &text, at.wall).map_err(|problem| anyhow!(problem.at(path)))?;
        Ok((config, Some(FileWatch::new(path.clone(), text))))
    }
}

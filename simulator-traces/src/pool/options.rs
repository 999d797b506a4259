//! What a scenario of kind `pool` can say, and what is made of it.

use super::Scenario;
use super::engine::{Arrival, Cluster, Transfer};
use crate::random::Random;
use crate::scenario::ScenarioError;
use fpga_core::pool::model::{Best, Formula, Linear, Load, Search};
use fpga_core::pool::policy::{Fit, IdleChoice, NothingFits, Order, Patience, Policy, Preference, Rules};
use fpga_core::pool::sizes::Sizes;
use fpga_core::pool::thresholds::{Shape, Thresholds};
use fpga_core::pool::{Bytes, NodeIndex};
use serde::Deserialize;
use std::fmt;
use std::num::NonZeroU32;

const MEGABYTE: f64 = 1e6;

/// `[cluster]`: the machines.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterOptions {
    /// How many nodes.
    pub nodes: u32,
    /// How many of them have a board.
    pub boards: u32,
    /// Slots of a board.
    pub slots: u32,
    /// Speed of a network card, each way, in Gb/s.
    pub nic_gbit: f64,
    /// Speed of a board's DMA engine, in GB/s of input.
    pub dma_gbyte: f64,
    /// Speed of the accelerator in a slot, in GB/s; 0: as fast as the DMA engine.
    pub slot_gbyte: f64,
    /// Bytes of output per byte of input.
    pub output_share: f64,
    /// How data moves.
    pub transfer: TransferName,
    /// Size of a chunk, in MB (2²⁰ bytes).
    pub chunk_mb: f64,
}

/// How data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferName {
    /// All ways at once.
    Pipelined,
    /// Chunk by chunk.
    Chunks,
}

/// `[jobs]`: what there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobOptions {
    /// Jobs of each node that sends any.
    pub per_node: u32,
    /// Which nodes send jobs.
    pub from: Senders,
    /// Bytes that come per second, over what all boards can process in it.
    pub load: f64,
    /// Distribution of sizes.
    pub sizes: SizesName,
    /// Mean of exponential sizes, in MB (10⁶ bytes).
    pub mean_mb: f64,
    /// Least size, in MB.
    pub min_mb: f64,
    /// Largest size of a power law, in MB.
    pub max_mb: f64,
    /// Exponent of a power law.
    pub alpha: f64,
}

/// Which nodes send jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Senders {
    /// All.
    All,
    /// Those with a board.
    Boards,
}

/// Distribution of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizesName {
    /// Short tail.
    Exponential,
    /// Long tail.
    PowerLaw,
}

/// `[rules]`: the resource-aware policies.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleOptions {
    /// C.
    pub contention: u32,
    /// D.
    pub skips: u32,
    /// W, in ms per MB.
    pub patience_ms_per_mb: f64,
    /// Whether a node's own jobs are always before others.
    pub preference: PreferenceName,
    /// Which idle slot a job gets under FIFO, SJF and WA.
    pub idle: IdleName,
}

/// Who comes first among the jobs that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreferenceName {
    /// The first in the order.
    Order,
    /// The node's own.
    LocalFirst,
}

/// Which idle slot a job gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleName {
    /// The one that has been idle longest.
    LongestIdle,
    /// One at home if there is one.
    HomeFirst,
}

/// `[queues]`: the workload-aware policies. What is left out is chosen by the model.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOptions {
    /// K.
    pub count: u32,
    /// E, as a share of the mean size.
    pub first_of_mean: Option<f64>,
    /// q.
    pub growth: Option<f64>,
    /// k1.
    pub linear_from: Option<u32>,
    /// k2.
    pub linear_to: Option<u32>,
    /// By which formula the model chooses.
    pub formula: FormulaName,
}

/// Formulas of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormulaName {
    /// The paper's.
    Paper,
    /// Cobham's.
    Exact,
}

/// The policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// First in, first out.
    #[default]
    Fifo,
    /// Shortest job first.
    Sjf,
    /// Resource-aware.
    Ra,
    /// Workload-aware.
    Wa,
    /// Workload-and-resource-aware.
    Wra,
    /// WRA that leaves a slot idle which no job fits, as RA does: not in the paper.
    WraIdle,
    /// The order of SJF with the rules of WRA: not in the paper.
    Sra,
    /// Every node for itself, first in, first out.
    LocalFifo,
    /// Every node for itself, shortest job first.
    LocalSjf,
}

/// `[[vary]]`: one parameter and its values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Which.
    pub parameter: Parameter,
    /// Its values.
    pub values: Vec<f64>,
}

/// Parameters that can be varied within a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are the fields of the options")]
pub enum Parameter {
    Load,
    MeanMb,
    Alpha,
    Slots,
    Boards,
    NicGbit,
    SlotGbyte,
    OutputShare,
    Contention,
    Skips,
    PatienceMsPerMb,
    Count,
    FirstOfMean,
    Growth,
    LinearFrom,
    LinearTo,
}

/// What an outcome shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// What came of the runs.
    #[default]
    Runs,
    /// Which thresholds the model chooses; nothing runs.
    Thresholds,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 100,
            boards: 50,
            slots: 4,
            nic_gbit: 10.0,
            dma_gbyte: 2.1,
            slot_gbyte: 0.0,
            output_share: 1.0,
            transfer: TransferName::Pipelined,
            chunk_mb: 4.0,
        }
    }
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            per_node: 50,
            from: Senders::All,
            load: 0.8,
            sizes: SizesName::Exponential,
            mean_mb: 400.0,
            min_mb: 4.0,
            max_mb: 40_000.0,
            alpha: 1.1,
        }
    }
}

impl Default for RuleOptions {
    fn default() -> Self {
        Self {
            contention: 2,
            skips: 5,
            patience_ms_per_mb: 10.0,
            preference: PreferenceName::Order,
            idle: IdleName::LongestIdle,
        }
    }
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            count: 20,
            first_of_mean: None,
            growth: None,
            linear_from: None,
            linear_to: None,
            formula: FormulaName::Exact,
        }
    }
}

/// The default of `seeds`.
pub(super) fn five() -> u64 {
    5
}

/// The default of `policies`: the paper's.
pub(super) fn all_policies() -> Vec<PolicyName> {
    vec![PolicyName::Fifo, PolicyName::Sjf, PolicyName::Ra, PolicyName::Wa, PolicyName::Wra]
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "FIFO",
            Self::Sjf => "SJF",
            Self::Ra => "RA",
            Self::Wa => "WA",
            Self::Wra => "WRA",
            Self::WraIdle => "WRA idle",
            Self::Sra => "SRA",
            Self::LocalFifo => "local FIFO",
            Self::LocalSjf => "local SJF",
        })
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::MeanMb => "mean, MB",
            Self::Alpha => "α",
            Self::Slots => "slots",
            Self::Boards => "boards",
            Self::NicGbit => "NIC, Gb/s",
            Self::SlotGbyte => "slot, GB/s",
            Self::OutputShare => "output/input",
            Self::Contention => "C",
            Self::Skips => "D",
            Self::PatienceMsPerMb => "W, ms/MB",
            Self::Count => "K",
            Self::FirstOfMean => "E/mean",
            Self::Growth => "q",
            Self::LinearFrom => "k1",
            Self::LinearTo => "k2",
        })
    }
}

/// An invalid scenario.
fn invalid(what: impl Into<String>) -> ScenarioError {
    ScenarioError::Invalid(what.into())
}

/// A count from a varied value.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
fn count(value: f64) -> Result<u32, ScenarioError> {
    if value == value.trunc() && (0.0..=1e6).contains(&value) {
        Ok(value as u32)
    } else {
        Err(invalid(format!("{value} is no count: write a whole number up to 1000000")))
    }
}

impl Scenario {
    /// This scenario with a parameter changed.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the value is none for it.
    pub fn with(&self, parameter: Parameter, value: f64) -> Result<Self, ScenarioError> {
        let mut changed = self.clone();
        match parameter {
            Parameter::Load => changed.jobs.load = value,
            Parameter::MeanMb => changed.jobs.mean_mb = value,
            Parameter::Alpha => changed.jobs.alpha = value,
            Parameter::Slots => changed.cluster.slots = count(value)?,
            Parameter::Boards => changed.cluster.boards = count(value)?,
            Parameter::NicGbit => changed.cluster.nic_gbit = value,
            Parameter::SlotGbyte => changed.cluster.slot_gbyte = value,
            Parameter::OutputShare => changed.cluster.output_share = value,
            Parameter::Contention => changed.rules.contention = count(value)?,
            Parameter::Skips => changed.rules.skips = count(value)?,
            Parameter::PatienceMsPerMb => changed.rules.patience_ms_per_mb = value,
            Parameter::Count => changed.queues.count = count(value)?,
            Parameter::FirstOfMean => changed.queues.first_of_mean = Some(value),
            Parameter::Growth => changed.queues.growth = Some(value),
            Parameter::LinearFrom => changed.queues.linear_from = Some(count(value)?),
            Parameter::LinearTo => changed.queues.linear_to = Some(count(value)?),
        }
        Ok(changed)
    }

    /// The machines.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn cluster(&self) -> Result<Cluster, ScenarioError> {
        let ClusterOptions { nodes, boards, slots, .. } = self.cluster;
        let ClusterOptions { nic_gbit, dma_gbyte, slot_gbyte, output_share, chunk_mb, .. } = self.cluster;
        if !(1..=nodes).contains(&boards) || nodes > 100_000 || !(1..=1000).contains(&slots) {
            return Err(invalid("`cluster` needs 1 <= boards <= nodes <= 100000 and 1 <= slots <= 1000"));
        }
        let positive = |value: f64| value.is_finite() && value > 1e-6;
        let sizes = [nic_gbit, dma_gbyte, chunk_mb].into_iter().all(positive);
        if !sizes || !(slot_gbyte == 0.0 || positive(slot_gbyte)) || !(0.0..=1000.0).contains(&output_share) {
            return Err(invalid("speeds and chunks of `cluster` must be above 0, `output_share` 0 to 1000"));
        }
        let transfer = match self.cluster.transfer {
            TransferName::Pipelined => Transfer::Pipelined,
            TransferName::Chunks => Transfer::Chunks { bytes: (chunk_mb * 1_048_576.0).max(1.0) },
        };
        Ok(Cluster {
            slots: (0..nodes).map(|node| if node < boards { slots } else { 0 }).collect(),
            nic: nic_gbit * 1e9 / 8.0,
            dma: dma_gbyte * 1e9,
            slot: if slot_gbyte == 0.0 { f64::INFINITY } else { slot_gbyte * 1e9 },
            output_share,
            transfer,
        })
    }

    /// The distribution of sizes.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn sizes(&self) -> Result<Sizes, ScenarioError> {
        let JobOptions { mean_mb, min_mb, max_mb, alpha, .. } = self.jobs;
        let sizes = match self.jobs.sizes {
            SizesName::Exponential => Sizes::exponential(min_mb * MEGABYTE, mean_mb * MEGABYTE),
            SizesName::PowerLaw => Sizes::power_law(min_mb * MEGABYTE, max_mb * MEGABYTE, alpha),
        };
        sizes.map_err(|error| invalid(error.to_string()))
    }

    /// Bytes per second that a board can process: its DMA engine or all its slots limit it.
    fn board_speed(&self) -> f64 {
        let ClusterOptions { dma_gbyte, slot_gbyte, slots, .. } = self.cluster;
        let slots = if slot_gbyte == 0.0 { f64::INFINITY } else { slot_gbyte * f64::from(slots) };
        dma_gbyte.min(slots) * 1e9
    }

    /// Jobs per second of the whole cluster.
    fn jobs_per_second(&self) -> Result<f64, ScenarioError> {
        let JobOptions { load, per_node, .. } = self.jobs;
        if !(load.is_finite() && load > 0.0 && (1..=1_000_000).contains(&per_node)) {
            return Err(invalid("`jobs.load` must be above 0 and `jobs.per_node` at least 1"));
        }
        let capacity = f64::from(self.cluster.boards) * self.board_speed();
        Ok(load * capacity / self.sizes()?.mean())
    }

    /// The jobs of a seed, in the order of their times. They are the same for all policies.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    pub fn arrivals(&self, seed: u64) -> Result<Vec<Arrival>, ScenarioError> {
        let sizes = self.sizes()?;
        let senders = match self.jobs.from {
            Senders::All => self.cluster.nodes,
            Senders::Boards => self.cluster.boards,
        };
        let interval = f64::from(senders) / self.jobs_per_second()?;
        let mut arrivals = Vec::new();
        for node in 0..senders {
            let mut random = Random::new(seed, u64::from(node));
            let mut at = 0.0;
            for _ in 0..self.jobs.per_node {
                at += random.exponential(interval);
                let size = Bytes(sizes.quantile(random.unit()).max(1.0) as u64);
                arrivals.push(Arrival { at: (at * 1e9) as u64, home: NodeIndex(node), size });
            }
        }
        arrivals.sort_by_key(|job| (job.at, job.home));
        Ok(arrivals)
    }

    /// What the model is asked: one board at this load, or at 95 % where that is more.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn model_load(&self) -> Result<Load, ScenarioError> {
        let sizes = self.sizes()?;
        let bytes_per_second = self.board_speed();
        let jobs_per_second = self.jobs.load.min(0.95) * bytes_per_second / sizes.mean();
        Ok(Load { jobs_per_second, bytes_per_second, sizes })
    }

    /// The formula that the model uses.
    #[must_use]
    pub fn formula(&self) -> Formula {
        match self.queues.formula {
            FormulaName::Paper => Formula::Paper,
            FormulaName::Exact => Formula::Exact,
        }
    }

    /// Where the model looks; parameters that are given are taken as they are.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    pub fn search(&self) -> Result<Search, ScenarioError> {
        let sizes = self.sizes()?;
        let QueueOptions { count, first_of_mean, growth, linear_from, linear_to, .. } = self.queues;
        let linear = match (linear_from, linear_to) {
            (None, None) => Linear::Any,
            (Some(from), Some(to)) => Linear::Between { from, to },
            _ => return Err(invalid("`queues` needs both `linear_from` and `linear_to`, or neither")),
        };
        let lowest = sizes.quantile(0.005).max(1.0);
        let highest = sizes.quantile(0.9).max(lowest);
        let steps = 24_u32;
        let step = libm::pow(highest / lowest, 1.0 / f64::from(steps - 1));
        let firsts = std::iter::successors(Some(lowest), |first| Some(first * step)).take(24);
        Ok(Search {
            queues: count,
            first: first_of_mean.map_or_else(|| firsts.collect(), |share| vec![share * sizes.mean()]),
            growth: growth.map_or_else(
                || vec![1.05, 1.1, 1.15, 1.2, 1.3, 1.41, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0],
                |growth| vec![growth],
            ),
            linear,
        })
    }

    /// What the model chooses.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if no candidate is valid.
    pub fn best(&self) -> Result<Best, ScenarioError> {
        let search = self.search()?;
        let shape = Shape {
            first: search.first.first().copied().unwrap_or(0.0),
            growth: search.growth.first().copied().unwrap_or(0.0),
            linear_from: self.queues.linear_from.unwrap_or(1),
            linear_to: self.queues.linear_to.unwrap_or(1),
            queues: search.queues,
        };
        let best = self.model_load()?.best(&search, self.formula());
        best.ok_or_else(|| match shape.bounds() {
            Err(error) => invalid(error.to_string()),
            Ok(_) => invalid("the model finds no thresholds"),
        })
    }

    /// The policy of that name; `thresholds` are for those that have queues.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    pub fn policy(&self, name: PolicyName, thresholds: &Thresholds) -> Result<Policy, ScenarioError> {
        let RuleOptions { contention, skips, patience_ms_per_mb, preference, idle } = self.rules;
        let Some(contention) = NonZeroU32::new(contention) else {
            return Err(invalid("`rules.contention` must be at least 1"));
        };
        if !(patience_ms_per_mb.is_finite() && patience_ms_per_mb >= 0.0) {
            return Err(invalid("`rules.patience_ms_per_mb` must be a number of at least 0"));
        }
        let preference = match preference {
            PreferenceName::Order => Preference::Order,
            PreferenceName::LocalFirst => Preference::LocalFirst,
        };
        let patience = Patience((patience_ms_per_mb * 1e6) as u64);
        let nothing_fits = NothingFits::KeepIdle;
        let rules = Rules { contention, skips, patience, preference, nothing_fits };
        let anyone = Fit::Anyone(match idle {
            IdleName::LongestIdle => IdleChoice::LongestIdle,
            IdleName::HomeFirst => IdleChoice::HomeFirst,
        });
        Ok(match name {
            PolicyName::Fifo => Policy { fit: anyone, ..Policy::fifo() },
            PolicyName::Sjf => Policy { fit: anyone, ..Policy::shortest_first() },
            PolicyName::Ra => Policy::resource_aware(rules),
            PolicyName::Wa => Policy { fit: anyone, ..Policy::workload_aware(thresholds.clone()) },
            PolicyName::Wra => Policy::workload_and_resource_aware(thresholds.clone(), rules),
            PolicyName::WraIdle => {
                Policy { order: Order::Queues(thresholds.clone()), ..Policy::resource_aware(rules) }
            }
            PolicyName::Sra => Policy {
                order: Order::Size,
                ..Policy::workload_and_resource_aware(thresholds.clone(), rules)
            },
            PolicyName::LocalFifo => Policy { order: Order::Arrival, ..Policy::local_shortest_first() },
            PolicyName::LocalSjf => Policy::local_shortest_first(),
        })
    }
}

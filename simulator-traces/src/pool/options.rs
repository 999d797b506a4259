//! What a scenario of kind `pool` can say. What is made of it stands beside this: [`super::workload`], [`super::thresholds`].

use crate::scenario::ScenarioError;
use serde::Deserialize;
use std::fmt;

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

/// An invalid scenario.
pub(super) fn invalid(what: impl Into<String>) -> ScenarioError {
    ScenarioError::Invalid(what.into())
}

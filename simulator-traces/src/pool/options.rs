//! The options of scenarios of kind `pool`. [`super::workload`] and [`super::thresholds`] compute with them.

use serde::Deserialize;
use std::fmt;

/// `[cluster]`: the simulated machines.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterOptions {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of nodes that have a board.
    pub boards: u32,
    /// Slots of each board.
    pub slots: u32,
    /// Speed of a network card in each direction, in Gb/s.
    pub nic_gbit: f64,
    /// Speed of a board's DMA engine, in GB/s of input.
    pub dma_gbyte: f64,
    /// Speed of the accelerator in a slot, in GB/s; 0: as fast as the DMA engine.
    pub slot_gbyte: f64,
    /// Bytes of output per byte of input.
    pub output_share: f64,
    /// How jobs transfer their data.
    pub transfer: TransferName,
    /// Size of a chunk, in MB (2²⁰ bytes).
    pub chunk_mb: f64,
}

/// How jobs transfer their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferName {
    /// All ways at the same time, as a pipeline.
    Pipelined,
    /// In chunks, one after the other. Jobs that use the same DMA engine share it max-min fair.
    Chunks,
    /// In chunks, one after the other. A DMA engine serves the chunks of several jobs one after the other as well.
    ChunksInTurn,
}

/// `[jobs]`: the simulated jobs.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobOptions {
    /// Number of jobs of each node that sends jobs.
    pub per_node: u32,
    /// The nodes that send jobs.
    pub from: Senders,
    /// Bytes that arrive per second, divided by the bytes that all boards can process per second.
    pub load: f64,
    /// The distribution of sizes.
    pub sizes: SizesName,
    /// Mean of exponential sizes, in MB (10⁶ bytes).
    pub mean_mb: f64,
    /// Least size, in MB.
    pub min_mb: f64,
    /// Greatest size under a power law, in MB.
    pub max_mb: f64,
    /// Exponent of the power law.
    pub alpha: f64,
}

/// The nodes that send jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Senders {
    /// All nodes.
    All,
    /// The nodes that have a board.
    Boards,
}

/// The distribution of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizesName {
    /// Exponential: a short tail.
    Exponential,
    /// Power law: a long tail.
    PowerLaw,
}

/// `[rules]`: parameters of the resource-aware policies.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleOptions {
    /// C: maximum number of remote jobs on a node.
    pub contention: u32,
    /// D: number of skips after which a job may run remotely.
    pub skips: u32,
    /// W: waiting time after which a job may run remotely, in ms per MB of its size.
    pub patience_ms_per_mb: f64,
    /// Which of the jobs that fit comes first.
    pub preference: PreferenceName,
    /// The idle slot that an arriving job gets under FIFO, SJF and WA.
    pub idle: IdleName,
    /// Whether old jobs move to queue 1.
    pub aging: AgingName,
}

/// Whether old jobs move to queue 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgingName {
    /// Never, as the paper prints it.
    Never,
    /// As in a shared pool.
    Pool,
}

/// Which of the jobs that fit comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreferenceName {
    /// The first job in the policy's order.
    Order,
    /// The first local job.
    LocalFirst,
}

/// The idle slot that an arriving job gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleName {
    /// The slot that has been idle longest.
    LongestIdle,
    /// A slot at home if one is idle.
    HomeFirst,
}

/// `[[tenants]]`: a tenant of the pool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantOptions {
    /// Name of the tenant.
    pub name: String,
    /// Share of the slot time while other tenants wait as well, in proportion to their weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// Share of the jobs, in proportion to those of the other tenants; 0: groups only.
    #[serde(default = "even")]
    pub arrivals: f64,
    /// Maximum number of slots that jobs of the tenant hold at the same time; without it no maximum.
    pub held_slots: Option<u32>,
    /// Number of slots that groups of the tenant get although jobs wait.
    #[serde(default)]
    pub guaranteed_slots: u32,
}

/// `[goals]`: how groups pursue their goals.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalOptions {
    /// The policy for the sizes of groups.
    pub policy: GoalPolicyName,
    /// Time between two divisions of the slots, in s.
    pub period_s: f64,
    /// Slots that groups leave to jobs.
    pub floor: FloorName,
    /// Share of the time to a deadline by which a group wants to be done earlier; without it, the pool's default.
    pub margin: Option<f64>,
}

/// The policy for the sizes of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoalPolicyName {
    /// Controllers and broker, once per period.
    Throughput,
    /// Earliest deadline first.
    Edf,
}

/// Slots that groups leave to jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FloorName {
    /// A quarter.
    Quarter,
    /// None.
    None,
}

/// `[[groups]]`: a group of equal actions with a goal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupOptions {
    /// Name of the group.
    pub name: String,
    /// Name of its tenant; needed where there are tenants.
    pub tenant: Option<String>,
    /// Time of arrival, in s.
    #[serde(default)]
    pub at_s: f64,
    /// Number of actions.
    pub actions: u64,
    /// Time of an action in a slot, in ms.
    pub action_ms: f64,
    /// Deadline, in s since the beginning of the run.
    pub deadline_s: Option<f64>,
    /// Throughput goal, in actions per second.
    pub per_second: Option<f64>,
    /// Least number of slots.
    #[serde(default)]
    pub least: u32,
    /// Greatest number of slots.
    pub most: Option<u32>,
}

/// `[queues]`: parameters of the workload-aware policies. The model chooses those that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueOptions {
    /// K: number of queues.
    pub count: u32,
    /// E: the first threshold, as a share of the mean size.
    pub first_of_mean: Option<f64>,
    /// q: ratio of a geometric threshold to the one before it.
    pub growth: Option<f64>,
    /// k1: number of the last threshold before the linear part.
    pub linear_from: Option<u32>,
    /// k2: number of the last threshold of the linear part.
    pub linear_to: Option<u32>,
    /// The formula by which the model chooses.
    pub formula: FormulaName,
}

/// The formulas of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormulaName {
    /// Formulas (3) and (4) of the paper: an approximation.
    Paper,
    /// Cobham's formula: exact for a server without preemption.
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
    /// WRA, except that a slot which no job fits stays idle, as under RA; not in the paper.
    WraIdle,
    /// The order of SJF with the rules of WRA; not in the paper.
    Sra,
    /// First in, first out on each node, without pooling.
    LocalFifo,
    /// Shortest job first on each node, without pooling.
    LocalSjf,
}

/// The output of a scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// The measures of the runs.
    #[default]
    Runs,
    /// The thresholds that the model chooses; nothing is simulated.
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
            aging: AgingName::Never,
        }
    }
}

impl Default for GoalOptions {
    fn default() -> Self {
        Self { policy: GoalPolicyName::Throughput, period_s: 5.0, floor: FloorName::Quarter, margin: None }
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

/// Default of `seeds`.
pub(super) fn five() -> u64 {
    5
}

/// Default of a tenant's `weight`.
fn one() -> u32 {
    1
}

/// Default of a tenant's `arrivals`.
fn even() -> f64 {
    1.0
}

/// Default of `policies`: the paper's.
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

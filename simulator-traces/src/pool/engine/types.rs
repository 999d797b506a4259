//! What a run is given, and what it tells.

use fpga_cluster::pool::tenants::TenantRules;
use fpga_cluster::pool::{Bytes, NodeIndex, Place, TenantId};
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::GoalRules;
use fpga_cluster::qos::{Goal, Limits};

/// The simulated machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Number of slots of each node; a node with slots has one board.
    pub slots: Vec<u32>,
    /// Speed of a node's network card in each direction, in bytes per second.
    pub nic: f64,
    /// Speed of a board's DMA engine, in bytes of input per second.
    pub dma: f64,
    /// Speed of the accelerator in a slot, in bytes of input per second.
    pub slot: f64,
    /// Bytes of output per byte of input.
    pub output_share: f64,
    /// How jobs transfer their data.
    pub transfer: Transfer,
}

/// How a job transfers its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transfer {
    /// All ways are used at the same time, as a pipeline: the slowest port limits the rate.
    Pipelined,
    /// In chunks: a chunk is sent, processed and returned before the next one is sent.
    Chunks {
        /// Bytes of input in a chunk.
        bytes: f64,
        /// How a board's DMA engine serves the chunks of several jobs.
        engine: EngineOrder,
    },
}

/// How a board's DMA engine serves the chunks of several jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineOrder {
    /// All at the same time, max-min fair (P-6).
    Shared,
    /// One after the other, in the order in which they come.
    InTurn,
}

/// A job before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival in nanoseconds.
    pub at: u64,
    /// Tenant of the job.
    pub tenant: TenantId,
    /// Node at which the job arrives and which has its data.
    pub home: NodeIndex,
    /// Bytes of input.
    pub size: Bytes,
}

/// The course of a job; times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The arrival of the job.
    pub job: Arrival,
    /// Time at which the job got its slot.
    pub started: u64,
    /// Time at which the last byte was back.
    pub ended: u64,
    /// Whether the job ran at home.
    pub place: Place,
}

/// Who shares the slots besides, and by which rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shared<'a> {
    /// The tenants, by [`TenantId`]; without any there is one, which has all guarantees.
    pub tenants: &'a [Tenant],
    /// How groups pursue their goals.
    pub goals: Goals,
    /// The groups, in the order of their arrival.
    pub groups: &'a [GroupArrival],
}

/// What a tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// Its weight and quotas.
    pub rules: TenantRules,
    /// Number of slots that its groups get although jobs wait.
    pub guaranteed_slots: u32,
}

/// How groups pursue their goals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goals {
    /// The policy for the sizes of groups.
    pub policy: GoalPolicy,
    /// Its rules.
    pub rules: GoalRules,
    /// Time between two divisions of the slots, in nanoseconds; above 0.
    pub period: u64,
}

/// A group before it opens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupArrival {
    /// Time of arrival in nanoseconds.
    pub at: u64,
    /// Tenant of the group.
    pub tenant: TenantId,
    /// Goal of the group; a deadline counts from the beginning of the run.
    pub goal: Goal,
    /// Minimum and maximum number of slots.
    pub limits: Limits,
    /// Number of actions, above 0.
    pub actions: u64,
    /// Time of an action in a slot, in nanoseconds; above 0.
    pub action: u64,
}

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRecord {
    /// The group did not open.
    Refused,
    /// The last action has ended.
    Ended {
        /// When, in nanoseconds.
        at: u64,
        /// Time for which the group had slots, all together, in nanoseconds.
        slot_time: u64,
    },
}

impl Default for Goals {
    fn default() -> Self {
        Self { policy: GoalPolicy::default(), rules: GoalRules::default(), period: 5_000_000_000 }
    }
}

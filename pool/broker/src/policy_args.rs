//! Flags of the policy.

use crate::policy::{PolicySettings, TenantSettings};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use fpga_cluster::pool::policy::{Aging, Contention, Fit, Patience, PoolPolicy, ResourceAwareRules};
use fpga_cluster::pool::thresholds::Shape;
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::{Floor, GoalRules, Margin};
use fpga_net::duration;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of the policy.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// Order of jobs, and which jobs a slot takes.
    #[arg(long, env = "FPGA_JOB_POLICY", value_enum, default_value_t = JobPolicy::Wra)]
    job_policy: JobPolicy,
    /// W: time per megabyte for which a job waits for a slot of its own node.
    #[arg(long, env = "FPGA_LOCALITY_WAIT", value_name = "TIME", default_value = "10ms", value_parser = duration::parse)]
    locality_wait: Duration,
    /// D: number of freed slots of other nodes that pass a job by before it takes any.
    #[arg(long, env = "FPGA_LOCALITY_SKIPS", value_name = "COUNT", default_value_t = 5)]
    locality_skips: u32,
    /// C: most jobs of other nodes on a node at once; by default half of the slots that the node lends.
    #[arg(long, env = "FPGA_REMOTE_JOBS", value_name = "COUNT")]
    remote_jobs: Option<NonZeroU32>,
    /// E: size up to which jobs are in the queue of the smallest, in bytes. The bounds of the next 18 queues grow from
    /// there: each is 1.8 times the one before. The 20th queue has all larger jobs.
    #[arg(long, env = "FPGA_FIRST_QUEUE", value_name = "BYTES", default_value_t = 1_000_000)]
    first_queue: u64,
    /// How the slots of groups with goals are counted out.
    #[arg(long, env = "FPGA_GOAL_POLICY", value_enum, default_value_t = GoalPolicyName::Throughput)]
    goal_policy: GoalPolicyName,
    /// Slots of each kind that groups leave to jobs.
    #[arg(long, env = "FPGA_FLOOR", value_enum, default_value_t = FloorName::Quarter)]
    floor: FloorName,
    /// Share of its time by which a group wants to be done before its deadline; 0 is the published formula.
    #[arg(long, env = "FPGA_MARGIN", value_name = "SHARE", default_value_t = 0.03)]
    margin: f64,
    /// Time between two divisions of the slots between groups.
    #[arg(long, env = "FPGA_GOAL_PERIOD", value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    goal_period: Duration,
    /// What namespaces may have (TOML): weights, quotas, guaranteed slots. Without it each has weight 1, and no quota but half of
    /// --max-waiting.
    #[arg(long, env = "FPGA_TENANTS", value_name = "PATH")]
    tenants: Option<PathBuf>,
    /// Most jobs that wait at once.
    #[arg(long, env = "FPGA_MAX_WAITING", value_name = "COUNT", default_value_t = 100_000)]
    max_waiting: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum JobPolicy {
    /// By size and by locality.
    Wra,
    /// By locality, else by arrival.
    Ra,
    /// By size.
    Wa,
    /// By arrival.
    Fifo,
    /// The shortest job first.
    Sjf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GoalPolicyName {
    /// Controllers and a broker, once per period.
    Throughput,
    /// Earliest deadline first.
    Edf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FloorName {
    /// A quarter, at least one slot.
    Quarter,
    /// None.
    None,
}

/// Queues by size: up to 1 MB, then ×1.8 up to 39 GB, so that the sizes of any pool fall into many of them (P-5). The paper's
/// growth of 1.41 would end at 0.5 GB, and jobs beyond it would come in the order of their arrival.
const QUEUES: Shape = Shape { first: 1e6, growth: 1.8, linear_from: 1, linear_to: 1, queues: 20 };

impl PolicyArgs {
    /// The settings that the flags stand for.
    ///
    /// # Errors
    /// A flag's value can't be.
    pub fn settings(&self) -> Result<PolicySettings> {
        let margin = Margin::new(self.margin).context("--margin")?;
        if self.goal_period < Duration::from_millis(100) {
            bail!("--goal-period {:?} can't be; write 100ms or more, for example 5s", self.goal_period);
        }
        let tenants = match &self.tenants {
            Some(path) => TenantSettings::read(path).context("--tenants")?,
            None => TenantSettings::default(),
        };
        let goals = match self.goal_policy {
            GoalPolicyName::Throughput => GoalPolicy::Throughput,
            GoalPolicyName::Edf => GoalPolicy::Edf,
        };
        let floor = match self.floor {
            FloorName::Quarter => Floor::Quarter,
            FloorName::None => Floor::None,
        };
        Ok(PolicySettings {
            jobs: self.jobs()?,
            most_waiting: self.max_waiting,
            goals,
            rules: GoalRules { margin, floor, ..GoalRules::default() },
            period: self.goal_period.into(),
            tenants,
        })
    }

    /// Most jobs that wait at once.
    #[must_use]
    pub fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    fn jobs(&self) -> Result<PoolPolicy> {
        let patience = Patience(u64::try_from(self.locality_wait.as_nanos()).unwrap_or(u64::MAX));
        let contention = self.remote_jobs.map_or(Contention::HalfOfSlots, Contention::Jobs);
        let rules = ResourceAwareRules {
            contention,
            skips: self.locality_skips,
            patience,
            ..ResourceAwareRules::default()
        };
        let queues = Shape { first: self.first_queue as f64, ..QUEUES };
        let thresholds = queues.thresholds().context("--first-queue")?;
        let policy = match self.job_policy {
            JobPolicy::Wra => PoolPolicy::workload_and_resource_aware(thresholds, rules),
            JobPolicy::Ra => PoolPolicy::resource_aware(rules),
            JobPolicy::Wa => PoolPolicy::workload_aware(thresholds),
            JobPolicy::Fifo => PoolPolicy::fifo(),
            JobPolicy::Sjf => PoolPolicy::shortest_first(),
        };
        let by_locality = matches!(policy.fit, Fit::ResourceAware(_));
        let by_size = Patience(patience.0.saturating_mul(10));
        let aging = match Aging::DEFAULT {
            Aging::After { base, .. } if by_locality => Aging::After { base, by_size },
            default => default,
        };
        Ok(PoolPolicy { aging, ..policy })
    }
}

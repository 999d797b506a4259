//! The simulated machines and jobs that a scenario describes.

use super::Scenario;
use super::engine::{Arrival, Cluster, EngineOrder, Transfer};
use super::options::{ClusterOptions, JobOptions, Senders, SizesName, TransferName};
use crate::error::ScenarioError;
use crate::random::Random;
use fpga_cluster::pool::sizes::Sizes;
use fpga_cluster::pool::{Bytes, NodeIndex};

const MEGABYTE: f64 = 1e6;
/// The first stream of random numbers for tenants; jobs have those of their nodes.
const TENANTS: u64 = 1 << 32;

impl Scenario {
    /// The simulated machines.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range.
    pub fn cluster(&self) -> Result<Cluster, ScenarioError> {
        let ClusterOptions { nodes, boards, slots, .. } = self.cluster;
        let ClusterOptions { nic_gbit, dma_gbyte, slot_gbyte, output_share, chunk_mb, .. } = self.cluster;
        if !(1..=nodes).contains(&boards) || nodes > 100_000 || !(1..=1000).contains(&slots) {
            return Err(ScenarioError::invalid(
                "`cluster` needs 1 <= boards <= nodes <= 100000 and 1 <= slots <= 1000",
            ));
        }
        let positive = |value: f64| value.is_finite() && value > 1e-6;
        let sizes = [nic_gbit, dma_gbyte, chunk_mb].into_iter().all(positive);
        if !sizes || !(slot_gbyte == 0.0 || positive(slot_gbyte)) || !(0.0..=1000.0).contains(&output_share) {
            return Err(ScenarioError::invalid(
                "speeds and chunks of `cluster` must be above 0, `output_share` 0 to 1000",
            ));
        }
        if self.cluster.transfer == TransferName::Chunks && slot_gbyte != 0.0 {
            return Err(ScenarioError::invalid(
                "`transfer = \"chunks\"` knows no speed of a slot: leave `slot_gbyte` at 0, or take \"chunks-in-turn\"",
            ));
        }
        let chunks = |engine| Transfer::Chunks { bytes: (chunk_mb * 1_048_576.0).max(1.0), engine };
        let transfer = match self.cluster.transfer {
            TransferName::Pipelined => Transfer::Pipelined,
            TransferName::Chunks => chunks(EngineOrder::Shared),
            TransferName::ChunksInTurn => chunks(EngineOrder::InTurn),
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
    /// [`ScenarioError::Invalid`] if there is no such distribution.
    pub fn sizes(&self) -> Result<Sizes, ScenarioError> {
        let JobOptions { mean_mb, min_mb, max_mb, alpha, .. } = self.jobs;
        let sizes = match self.jobs.sizes {
            SizesName::Exponential => Sizes::exponential(min_mb * MEGABYTE, mean_mb * MEGABYTE),
            SizesName::PowerLaw => Sizes::power_law(min_mb * MEGABYTE, max_mb * MEGABYTE, alpha),
        };
        sizes.map_err(|error| ScenarioError::invalid(error.to_string()))
    }

    /// Bytes of input that a board can process per second, limited by its DMA engine or by all its slots.
    pub(super) fn board_speed(&self) -> f64 {
        let ClusterOptions { dma_gbyte, slot_gbyte, slots, .. } = self.cluster;
        let slots = if slot_gbyte == 0.0 { f64::INFINITY } else { slot_gbyte * f64::from(slots) };
        dma_gbyte.min(slots) * 1e9
    }

    /// Rate of arrivals in the whole cluster, in jobs per second.
    fn jobs_per_second(&self) -> Result<f64, ScenarioError> {
        let JobOptions { load, per_node, .. } = self.jobs;
        if !(load.is_finite() && load > 0.0 && (1..=1_000_000).contains(&per_node)) {
            return Err(ScenarioError::invalid("`jobs.load` must be above 0 and `jobs.per_node` at least 1"));
        }
        let capacity = f64::from(self.cluster.boards) * self.board_speed();
        Ok(load * capacity / self.sizes()?.mean())
    }

    /// The jobs of a seed, in the order of their arrival. They don't depend on the policy.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if options are out of range.
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
            // Numbers of their own, so that the jobs are the same whatever tenants there are.
            let mut of_tenants = Random::new(seed, TENANTS + u64::from(node));
            let mut at = 0.0;
            for _ in 0..self.jobs.per_node {
                at += random.exponential(interval);
                let size = Bytes(sizes.quantile(random.unit()).max(1.0) as u64);
                let tenant = self.tenant_at(of_tenants.unit());
                arrivals.push(Arrival { at: (at * 1e9) as u64, tenant, home: NodeIndex(node), size });
            }
        }
        arrivals.sort_by_key(|job| (job.at, job.home));
        Ok(arrivals)
    }
}

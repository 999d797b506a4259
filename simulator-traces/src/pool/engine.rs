//! The event loop of one run: jobs arrive, get slots from `fpga_cluster`'s pool, and transfer their data (P-6).
//!
//! The clock counts nanoseconds. Between two events all rates are constant, so the loop steps from event to event.
//! Every run checks its invariants: Little's law, bytes in and out, capacities, the order of events.

mod in_turn;
mod types;

pub use types::{Arrival, Cluster, EngineOrder, Record, Transfer};

use super::sharing::{Sharing, Use};
use crate::error::ScenarioError;
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::state::{Pool, PoolError};
use fpga_cluster::pool::tenants::TenantRules;
use fpga_cluster::pool::{Grant, Job, JobId, NodeIndex, Place, TenantId};
use in_turn::EnginesInTurn;
use std::time::Duration;

/// A running job.
#[derive(Debug)]
struct Flow {
    job: usize,
    node: NodeIndex,
    home: NodeIndex,
    place: Place,
    uses: Vec<Use>,
    stage: Stage,
    /// Input bytes of the current chunk.
    chunk: f64,
    /// Bytes left in the current stage.
    left: f64,
    /// Input bytes of later chunks.
    later: f64,
    rate: f64,
    ends: u64,
    /// End of the current stage, if it is settled: the engine serves the chunks in turn.
    settled: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    All,
    There,
    Process,
    Back,
}

struct Engine<'a> {
    cluster: &'a Cluster,
    jobs: &'a [Arrival],
    capacity: Vec<f64>,
    pool: Pool,
    now: u64,
    flows: Vec<Flow>,
    started: Vec<Option<(u64, NodeIndex, Place)>>,
    ended: Vec<Option<u64>>,
    /// Integral over time of the number of jobs in the system, in job nanoseconds.
    area: u128,
    in_system: u64,
    sharing: Sharing,
    rates: Vec<f64>,
    engines: EnginesInTurn,
}

/// Runs `jobs`, which are in the order of their arrival, under `policy`. Records are in the same order. Tenants have equal
/// weights and no quotas.
///
/// # Errors
/// [`ScenarioError::Invalid`] if a job can never run, [`ScenarioError::Invariant`] if an invariant was broken.
pub fn simulate(
    cluster: &Cluster,
    policy: PoolPolicy,
    jobs: &[Arrival],
) -> Result<Vec<Record>, ScenarioError> {
    simulate_tenants(cluster, policy, &[], jobs)
}

/// Runs `jobs` of tenants with these rules, by [`TenantId`], as [`simulate`] does.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_tenants(
    cluster: &Cluster,
    policy: PoolPolicy,
    tenants: &[TenantRules],
    jobs: &[Arrival],
) -> Result<Vec<Record>, ScenarioError> {
    let nodes = cluster.slots.len();
    let mut capacity = vec![cluster.nic; 2 * nodes];
    capacity.resize(3 * nodes, cluster.dma);
    let mut engine = Engine {
        cluster,
        jobs,
        capacity,
        pool: Pool::with_slots(&cluster.slots, policy, usize::MAX),
        now: 0,
        flows: Vec::new(),
        started: vec![None; jobs.len()],
        ended: vec![None; jobs.len()],
        area: 0,
        in_system: 0,
        sharing: Sharing::default(),
        rates: Vec::new(),
        engines: EnginesInTurn::of_nodes(nodes),
    };
    for (tenant, rules) in (0..).map(TenantId).zip(tenants) {
        engine.pool.set_tenant_rules(tenant, *rules, Duration::ZERO);
    }
    engine.run()?;
    engine.records()
}

fn broken(what: impl Into<String>) -> ScenarioError {
    ScenarioError::Invariant(what.into())
}

fn pool_error(error: &PoolError) -> ScenarioError {
    match error {
        PoolError::NoSlot(_) => ScenarioError::Invalid(error.to_string()),
        PoolError::Known(_) | PoolError::NotRunning(_) | PoolError::Full(_) | PoolError::Quota(_) => {
            broken(error.to_string())
        }
    }
}

impl Engine<'_> {
    fn run(&mut self) -> Result<(), ScenarioError> {
        let mut next_job = 0;
        loop {
            let arrival = self.jobs.get(next_job).map(|job| job.at);
            let end = self.flows.iter().map(|flow| flow.ends).min();
            let wake = self.pool.next_wake().map(nanos);
            let Some(next) = [arrival, end, wake].into_iter().flatten().min() else { break };
            self.advance(next)?;
            let mut grants = Vec::new();
            let changed = self.end_stages(&mut grants)?;
            while let Some(job) = self.jobs.get(next_job).filter(|job| job.at <= self.now) {
                self.in_system += 1;
                let tenant = job.tenant;
                let job = Job { tenant, ..Job::of_one_tenant(JobId(next_job as u64), job.home, job.size) };
                grants.extend(self.pool.submit(job, self.clock()).map_err(|error| pool_error(&error))?);
                next_job += 1;
            }
            grants.extend(self.pool.wake(self.clock()));
            if changed || !grants.is_empty() {
                for grant in grants {
                    self.start(&grant)?;
                }
                self.share()?;
            }
        }
        if self.pool.waiting() > 0 || self.pool.running() > 0 {
            return Err(broken(format!("{} jobs wait for ever", self.pool.waiting())));
        }
        Ok(())
    }

    fn clock(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    fn advance(&mut self, next: u64) -> Result<(), ScenarioError> {
        let Some(step) = next.checked_sub(self.now) else {
            return Err(broken(format!("an event at {next} ns comes after {} ns", self.now)));
        };
        let seconds = step as f64 / 1e9;
        for flow in &mut self.flows {
            flow.left -= flow.rate * seconds;
        }
        self.area += u128::from(self.in_system) * u128::from(step);
        self.now = next;
        Ok(())
    }

    /// Ends the stages that are due, and the jobs whose last stage that was. Returns whether a stage ended.
    fn end_stages(&mut self, grants: &mut Vec<Grant>) -> Result<bool, ScenarioError> {
        let mut changed = false;
        let mut index = 0;
        while let Some(flow) = self.flows.get_mut(index) {
            if flow.ends > self.now {
                index += 1;
                continue;
            }
            changed = true;
            // Ends are rounded up to the next nanosecond, so slightly more than the remaining bytes may have been
            // moved.
            if flow.left > 0.5 || flow.left < -(flow.rate * 2e-9 + 0.5) {
                return Err(broken(format!("job {} ends with {} bytes to move", flow.job, flow.left)));
            }
            if let Some(stage) = flow.next_stage(self.cluster) {
                flow.enter(stage, self.cluster);
                // The next end is computed with the new rate.
                flow.ends = u64::MAX;
                index += 1;
                continue;
            }
            let flow = self.flows.swap_remove(index);
            if let Some(ended) = self.ended.get_mut(flow.job) {
                *ended = Some(self.now);
            }
            self.in_system -= 1;
            let clock = self.clock();
            let freed =
                self.pool.finish(JobId(flow.job as u64), clock).map_err(|error| pool_error(&error))?;
            grants.extend(freed);
        }
        Ok(changed)
    }

    fn start(&mut self, grant: &Grant) -> Result<(), ScenarioError> {
        let index = usize::try_from(grant.job.0).unwrap_or(usize::MAX);
        let (Some(job), Some(started)) = (self.jobs.get(index), self.started.get_mut(index)) else {
            return Err(broken(format!("nobody sent job {index}")));
        };
        if started.is_some() || job.at > self.now {
            return Err(broken(format!("job {index} starts twice, or before it came")));
        }
        *started = Some((self.now, grant.node, grant.place));
        let mut flow = Flow {
            job: index,
            node: grant.node,
            home: job.home,
            place: grant.place,
            uses: Vec::new(),
            stage: Stage::All,
            chunk: 0.0,
            left: 0.0,
            later: job.size.0 as f64,
            rate: 0.0,
            ends: u64::MAX,
            settled: None,
        };
        flow.enter(flow.first_stage(self.cluster), self.cluster);
        self.flows.push(flow);
        Ok(())
    }

    /// Computes the rates of all flows and the ends of their stages.
    fn share(&mut self) -> Result<(), ScenarioError> {
        let mut most = self.cluster.slot;
        if self.cluster.transfer.engine() == EngineOrder::InTurn {
            // The slots' speed counts where chunks are processed, and not on their way there and back.
            most = f64::INFINITY;
            for flow in self.flows.iter_mut().filter(|flow| flow.stage == Stage::Process) {
                let engines = &mut self.engines;
                let settle = || engines.serve(flow.node, flow.chunk, self.now, self.cluster);
                flow.settled = Some(flow.settled.unwrap_or_else(settle));
            }
        }
        let uses = self.flows.iter().map(|flow| flow.uses.as_slice());
        self.sharing.rates(&self.capacity, uses, most, &mut self.rates);
        let mut load = vec![0.0; self.capacity.len()];
        for (flow, rate) in self.flows.iter_mut().zip(&self.rates) {
            flow.rate = *rate;
            flow.ends = self.now + whole_nanos((flow.left / rate * 1e9).max(0.0));
            if let Some(ends) = flow.settled {
                flow.ends = ends;
                flow.rate = flow.left / (ends.saturating_sub(self.now).max(1) as f64 / 1e9);
            }
            for crossed in &flow.uses {
                load[crossed.port] += rate * crossed.weight;
            }
        }
        match load.iter().zip(&self.capacity).position(|(load, capacity)| *load > capacity * (1.0 + 1e-9)) {
            Some(port) => Err(broken(format!("port {port} carries more than it can"))),
            None => Ok(()),
        }
    }

    fn records(&self) -> Result<Vec<Record>, ScenarioError> {
        let mut records = Vec::with_capacity(self.jobs.len());
        let mut sojourns = 0_u128;
        for ((job, started), ended) in self.jobs.iter().zip(&self.started).zip(&self.ended) {
            let (Some((started, node, place)), Some(ended)) = (*started, *ended) else {
                return Err(broken("a job never ended"));
            };
            if !(job.at <= started && started <= ended) || (place == Place::Local) != (node == job.home) {
                return Err(broken(format!("a job of {} ran from {started} to {ended}", job.at)));
            }
            sojourns += u128::from(ended - job.at);
            records.push(Record { job: *job, started, ended, place });
        }
        // Little's law: the integral of the number of jobs over time equals the sum of the times in the system. Both
        // are integers.
        if sojourns != self.area {
            return Err(broken(format!("Little's law: {sojourns} is not {}", self.area)));
        }
        Ok(records)
    }
}

impl Flow {
    /// The first stage of each chunk.
    fn first_stage(&self, cluster: &Cluster) -> Stage {
        match (cluster.transfer, self.place) {
            (Transfer::Pipelined, _) => Stage::All,
            (Transfer::Chunks { .. }, Place::Remote) => Stage::There,
            (Transfer::Chunks { .. }, Place::Local) => Stage::Process,
        }
    }

    /// The stage after the current one; `None` after the last stage of the last chunk.
    fn next_stage(&self, cluster: &Cluster) -> Option<Stage> {
        match self.stage {
            Stage::There => Some(Stage::Process),
            Stage::Process if self.place == Place::Remote && cluster.output_share > 0.0 => Some(Stage::Back),
            Stage::All | Stage::Process | Stage::Back => {
                (self.later > 0.0).then(|| self.first_stage(cluster))
            }
        }
    }

    fn enter(&mut self, stage: Stage, cluster: &Cluster) {
        if stage == self.first_stage(cluster) {
            self.chunk = match cluster.transfer {
                Transfer::Pipelined => self.later,
                Transfer::Chunks { bytes, .. } => bytes.min(self.later),
            };
            self.later -= self.chunk;
        }
        let nodes = cluster.slots.len();
        let (node, home) = (self.node.0 as usize, self.home.0 as usize);
        let (node_in, node_out, node_dma) = (node, nodes + node, 2 * nodes + node);
        let (home_in, home_out) = (home, nodes + home);
        let one = |port: usize| Use { port, weight: 1.0 };
        self.stage = stage;
        self.settled = None;
        self.left = self.chunk;
        self.uses.clear();
        match stage {
            Stage::There => self.uses.extend([home_out, node_in].map(one)),
            Stage::Process if cluster.transfer.engine() == EngineOrder::InTurn => {}
            Stage::Process => self.uses.push(one(node_dma)),
            Stage::Back => {
                self.uses.extend([node_out, home_in].map(one));
                self.left *= cluster.output_share;
            }
            Stage::All => {
                self.uses.push(one(node_dma));
                if self.place == Place::Remote {
                    self.uses.extend([home_out, node_in].map(one));
                }
                if self.place == Place::Remote && cluster.output_share > 0.0 {
                    let back = |port: usize| Use { port, weight: cluster.output_share };
                    self.uses.extend([node_out, home_in].map(back));
                }
            }
        }
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// Rounds up to whole nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
fn whole_nanos(nanos: f64) -> u64 {
    nanos.ceil() as u64
}

#[cfg(test)]
mod tests;

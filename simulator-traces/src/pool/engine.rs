//! The event loop of one run: jobs arrive, get slots from `fpga_cluster`'s pool, and transfer their data (P-6). Groups with
//! goals (Q) have slots of the same pool.
//!
//! The clock counts nanoseconds. Between two events all rates are constant, so the loop steps from event to event.
//! Every run checks its invariants: Little's law, bytes in and out, capacities, the order of events.

mod flow;
mod goals;
mod groups;
mod in_turn;
mod types;

pub use types::{
    Arrival, Cluster, EngineOrder, Goals, GroupArrival, GroupRecord, Record, Shared, Tenant, Transfer,
};

use super::sharing::Sharing;
use crate::error::ScenarioError;
use flow::{Flow, Stage};
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::state::PoolError;
use fpga_cluster::pool::tenants::TenantRules;
use fpga_cluster::pool::{Grant, Job, JobId, NodeIndex, Place, SlotClass, SlotNumber, TenantId};
use fpga_cluster::shared_pool::{Parameters, SharedPool, Slot};
use groups::GroupRuns;
use in_turn::EnginesInTurn;
use std::time::Duration;

/// Most events of a run; more are considered a mistake.
const MOST_EVENTS: u64 = 200_000_000;

struct Engine<'a> {
    cluster: &'a Cluster,
    jobs: &'a [Arrival],
    capacity: Vec<f64>,
    pool: SharedPool,
    groups: GroupRuns<'a>,
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

/// What became of the jobs and groups of a run, each in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Course {
    /// The jobs.
    pub jobs: Vec<Record>,
    /// The groups.
    pub groups: Vec<GroupRecord>,
}

/// Runs `jobs`, which are in the order of their arrival, under `policy`: of one tenant, and without groups. Records are in
/// the same order.
///
/// # Errors
/// [`ScenarioError::Invalid`] if a job can never run, [`ScenarioError::Invariant`] if an invariant was broken.
pub fn simulate(
    cluster: &Cluster,
    policy: PoolPolicy,
    jobs: &[Arrival],
) -> Result<Vec<Record>, ScenarioError> {
    Ok(simulate_shared(cluster, policy, &Shared::default(), jobs)?.jobs)
}

/// Runs `jobs` of tenants beside groups with goals, as [`simulate`] does.
///
/// # Errors
/// As [`simulate`], and [`ScenarioError::Invalid`] if a group has no end.
pub fn simulate_shared(
    cluster: &Cluster,
    policy: PoolPolicy,
    shared: &Shared<'_>,
    jobs: &[Arrival],
) -> Result<Course, ScenarioError> {
    let nodes = cluster.slots.len();
    let mut capacity = vec![cluster.nic; 2 * nodes];
    capacity.resize(3 * nodes, cluster.dma);
    let mut engine = Engine {
        cluster,
        jobs,
        capacity,
        pool: pool(cluster, policy, shared),
        groups: GroupRuns::of(shared),
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
    engine.run()?;
    let groups = engine.groups.records().ok_or_else(|| broken("a group never ended"))?;
    Ok(Course { jobs: engine.records()?, groups })
}

/// The pool with its slots and tenants, before anything comes.
fn pool(cluster: &Cluster, jobs: PoolPolicy, shared: &Shared<'_>) -> SharedPool {
    let Goals { policy, rules, .. } = shared.goals;
    let mut pool = SharedPool::new(Parameters { jobs, most_waiting: usize::MAX, goals: policy, rules });
    // The first slot of every node, then the second of every node, so that the first jobs go to different nodes.
    for number in 0..cluster.slots.iter().copied().max().unwrap_or(0) {
        for (node, _) in (0..).map(NodeIndex).zip(&cluster.slots).filter(|(_, slots)| number < **slots) {
            let slot = Slot { node, number: SlotNumber(number) };
            pool.add_slot(slot, SlotClass::default(), Duration::ZERO);
        }
    }
    let all = [Tenant { rules: TenantRules::default(), guaranteed_slots: u32::MAX }];
    let tenants = if shared.tenants.is_empty() { &all } else { shared.tenants };
    for (id, tenant) in (0..).map(TenantId).zip(tenants) {
        pool.set_tenant(id, tenant.rules, tenant.guaranteed_slots, Duration::ZERO);
    }
    pool
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
        let (mut next_job, mut events) = (0, 0_u64);
        loop {
            let arrival = self.jobs.get(next_job).map(|job| job.at);
            let end = self.flows.iter().map(|flow| flow.ends).min();
            let wake = self.pool.pool().next_wake().map(nanos);
            let group = self.groups.next_event();
            let Some(next) = [arrival, end, wake, group].into_iter().flatten().min() else { break };
            events += 1;
            if events > MOST_EVENTS {
                return Err(ScenarioError::invalid("the groups don't end: they have too few slots for ever"));
            }
            self.advance(next)?;
            let mut grants = Vec::new();
            let changed = self.end_stages(&mut grants)?;
            while let Some(job) = self.jobs.get(next_job).filter(|job| job.at <= self.now) {
                self.in_system += 1;
                let tenant = job.tenant;
                let job = Job { tenant, ..Job::of_one_tenant(JobId(next_job as u64), job.home, job.size) };
                let actions = self.pool.submit(job, self.clock()).map_err(|error| pool_error(&error))?;
                self.carry_out(actions, &mut grants);
                next_job += 1;
            }
            self.pursue_goals(&mut grants);
            let actions = self.pool.wake(self.clock());
            self.carry_out(actions, &mut grants);
            if changed || !grants.is_empty() {
                for grant in grants {
                    self.start(&grant)?;
                }
                self.share()?;
            }
            let (all, taken) =
                (self.cluster.slots.iter().sum::<u32>(), self.flows.len() + self.groups.slots());
            if taken > all as usize {
                return Err(broken(format!("{taken} of {all} slots are taken")));
            }
        }
        let pool = self.pool.pool();
        if pool.waiting() > 0 || pool.running() > 0 {
            return Err(broken(format!("{} jobs wait for ever", pool.waiting())));
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
            let actions =
                self.pool.finish(JobId(flow.job as u64), clock).map_err(|error| pool_error(&error))?;
            self.carry_out(actions, grants);
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

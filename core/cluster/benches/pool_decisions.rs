//! Decisions per second of the pool on one core with 10,000 waiting jobs, 1,000 nodes of four slots. A round ends one job,
//! decides who gets its slot, and queues one new job.
//!
//! Jobs are `mixed`: at home and remote, small and large, of several slot classes and tenants. Or they are `alike`: of one
//! size, at home, and all there at the start, so that a skip and the end of patience concern all of them at once.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a benchmark that can't run should say so and end; its numbers are small"
)]

use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::state::Pool;
use fpga_cluster::pool::thresholds::Shape;
use fpga_cluster::pool::{
    AcceleratorId, Bytes, ClassSet, Grant, Job, JobId, NodeIndex, SlotClass, SlotNumber, TenantId,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const WAITING: u64 = 10_000;
const NODES: u32 = 1_000;
const SLOTS: u32 = 4;
const CLASSES: u8 = 3;
/// A second thousand of nodes has no slots and sends jobs, too.
const HOMES: u64 = 2_000;

fn main() {
    // `cargo test` runs benches as well, with few rounds.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 400_000 } else { 200 };
    println!(
        "{WAITING} waiting jobs, {NODES} nodes with {SLOTS} slots each, {CLASSES} slot classes, {rounds} rounds"
    );
    println!(
        "{:>6} {:>8} {:>12} {:>8} {:>8} {:>10} {:>8}",
        "jobs", "tenants", "decisions/s", "p50, us", "p99, us", "p99.9, us", "most, us"
    );
    for (jobs, tenants) in [(Jobs::Mixed, 1), (Jobs::Mixed, 10), (Jobs::Mixed, 100), (Jobs::Alike, 1)] {
        let mut times = run(jobs, tenants, rounds);
        let all: Duration = times.iter().sum();
        times.sort_unstable();
        let at =
            |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)].as_secs_f64() * 1e6;
        let rate = f64::from(rounds) / all.as_secs_f64();
        let name = format!("{jobs:?}").to_lowercase();
        println!(
            "{name:>6} {tenants:>8} {rate:>12.0} {:>8.2} {:>8.2} {:>10.2} {:>8.2}",
            at(500),
            at(990),
            at(999),
            at(1000)
        );
    }
}

/// What the jobs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jobs {
    /// Of all kinds.
    Mixed,
    /// All the same.
    Alike,
}

/// The time of each round.
fn run(jobs: Jobs, tenants: u64, rounds: u32) -> Vec<Duration> {
    let queues = Shape { first: 1e6, growth: 1.41, linear_from: 5, linear_to: 18, queues: 20 };
    let mut pool = Pool::new(PoolPolicy::shared(queues.thresholds().unwrap()), usize::MAX);
    let mut now = Duration::ZERO;
    for (slot, node) in (0..SLOTS).flat_map(|slot| (0..NODES).map(move |node| (slot, node))) {
        let class = SlotClass::new((node % u32::from(CLASSES)) as u8).unwrap();
        pool.add_slot(NodeIndex(node), SlotNumber(slot), class, now);
    }
    let mut random = 1;
    let mut running: VecDeque<Grant> = VecDeque::new();
    let mut id = 0;
    while (pool.waiting() as u64) < WAITING {
        id += 1;
        running.extend(pool.submit(job(jobs, id, tenants, &mut random), now).unwrap());
    }
    let mut times = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        // 4,000 slots and 10 ms for a job: so many jobs end in a second.
        now += Duration::from_nanos(2_500);
        id += 1;
        let new = job(jobs, id, tenants, &mut random);
        let ended = running.pop_front().unwrap();
        let began = Instant::now();
        let grants = pool.finish(ended.job, now).unwrap();
        let grant = pool.submit(new, now).unwrap();
        times.push(began.elapsed());
        running.extend(grants);
        running.extend(grant);
    }
    assert_eq!((running.len(), pool.waiting() as u64), ((NODES * SLOTS) as usize, WAITING));
    times
}

fn job(jobs: Jobs, id: u64, tenants: u64, random: &mut u64) -> Job {
    // Numbers of Marsaglia's xorshift.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let number = *random;
    if jobs == Jobs::Alike {
        let home = NodeIndex((number % u64::from(NODES)) as u32);
        // W is 250 ms for this size: a quarter of the time that the rounds take.
        return Job::of_one_tenant(JobId(id), home, Bytes(25_000_000));
    }
    let accelerator = (number >> 40) % 6;
    let class = |class: u64| SlotClass::new((class % u64::from(CLASSES)) as u8).unwrap();
    // Half of the accelerators run in all classes, the others in two.
    let classes = if accelerator < 3 { 0..3 } else { accelerator..accelerator + 2 };
    let classes: ClassSet = classes.map(class).collect();
    Job {
        id: JobId(id),
        tenant: TenantId((number >> 20) as u32 % tenants as u32),
        home: NodeIndex((number % HOMES) as u32),
        size: Bytes(1_000_000 << ((number >> 50) % 10)),
        accelerator: AcceleratorId(accelerator as u32),
        classes,
    }
}

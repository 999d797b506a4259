mod bundles;
mod classes;
mod paper;
mod rejoining;
mod sharing;

use super::super::Place;
use super::super::policy::{IdleChoice, NothingFits, Patience, Preference, ResourceAwareRules};
use super::super::thresholds::Thresholds;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::num::NonZeroU32;

fn job(id: u64, home: u32, megabytes: u64) -> Job {
    Job::of_one_tenant(JobId(id), NodeIndex(home), Bytes(megabytes * 1_000_000))
}

fn rules(contention: u32, skips: u32) -> ResourceAwareRules {
    ResourceAwareRules {
        contention: Contention::Jobs(NonZeroU32::new(contention).unwrap()),
        skips,
        patience: Patience(10_000_000),
        preference: Preference::Order,
        nothing_fits: NothingFits::KeepIdle,
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn grant(job: u64, node: u32, slot: u32, place: Place) -> Grant {
    Grant { job: JobId(job), node: NodeIndex(node), slot: SlotNumber(slot), place }
}

#[test]
fn jobs_take_the_slots_that_are_idle_longest_and_then_wait() {
    let mut pool = Pool::with_slots(&[2, 1, 0], PoolPolicy::fifo(), 10);
    // The first slots of all nodes, then the second of node 0.
    assert_eq!(pool.submit(job(1, 2, 1), secs(0)).unwrap(), Some(grant(1, 0, 0, Place::Remote)));
    assert_eq!(pool.submit(job(2, 2, 1), secs(0)).unwrap(), Some(grant(2, 1, 0, Place::Remote)));
    assert_eq!(pool.submit(job(3, 0, 1), secs(0)).unwrap(), Some(grant(3, 0, 1, Place::Local)));
    assert_eq!(pool.submit(job(4, 1, 1), secs(1)).unwrap(), None);
    assert_eq!(pool.submit(job(5, 2, 1), secs(1)).unwrap(), None);
    assert_eq!((pool.idle(), pool.running(), pool.waiting()), (0, 3, 2));
    assert_eq!(pool.finish(JobId(2), secs(2)).unwrap(), [grant(4, 1, 0, Place::Local)]);
    assert_eq!(pool.cancel(JobId(5)), Some(job(5, 2, 1)));
    assert_eq!(pool.finish(JobId(1), secs(3)).unwrap(), []);
    assert_eq!(pool.remote_running(NodeIndex(0)), 0);
}

#[test]
fn the_resource_aware_policy_starts_jobs_at_home_if_possible() {
    let mut pool = Pool::with_slots(&[1, 1, 0], PoolPolicy::resource_aware(rules(1, 5)), 10);
    assert_eq!(pool.submit(job(1, 1, 100), secs(0)).unwrap(), Some(grant(1, 1, 0, Place::Local)));
    // The job's home is busy: the job waits for 1 s although node 0 is idle.
    assert_eq!(pool.submit(job(2, 1, 100), secs(0)).unwrap(), None);
    assert_eq!(pool.next_wake(), Some(secs(1)));
    assert_eq!(pool.wake(Duration::from_millis(999)), []);
    assert_eq!(pool.wake(secs(1)), [grant(2, 0, 0, Place::Remote)]);
    assert_eq!(pool.next_wake(), None);
    // A job from a node without slots goes anywhere.
    assert_eq!(pool.submit(job(3, 2, 100), secs(1)).unwrap(), None);
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap(), [grant(3, 1, 0, Place::Remote)]);
}

#[test]
fn a_job_passed_over_often_enough_takes_any_idle_slot() {
    // Only slots that become free count as skips; node 2 is idle all the time.
    let mut pool = Pool::with_slots(&[1, 1, 1], PoolPolicy::resource_aware(rules(1, 2)), 10);
    for id in [1, 2] {
        let home = u32::try_from(id).unwrap() - 1;
        assert!(pool.submit(job(id, home, 1000), secs(0)).unwrap().is_some());
    }
    assert_eq!(pool.submit(job(3, 0, 1000), secs(0)).unwrap(), None);
    assert_eq!(pool.finish(JobId(2), secs(1)).unwrap(), []);
    assert!(pool.submit(job(4, 1, 1000), secs(1)).unwrap().is_some());
    // After the second skip the job goes to the node with the fewest remote jobs that has been idle longest.
    let grants = pool.finish(JobId(4), secs(2)).unwrap();
    assert_eq!(grants, [grant(3, 1, 0, Place::Remote)]);
}

#[test]
fn an_impossible_job_is_refused_and_the_pool_is_unchanged() {
    let mut pool = Pool::with_slots(&[1, 0], PoolPolicy::local_shortest_first(), 1);
    assert_eq!(pool.submit(job(1, 1, 1), secs(0)), Err(PoolError::NoSlot(JobId(1))));
    assert_eq!(pool.finish(JobId(1), secs(0)), Err(PoolError::NotRunning(JobId(1))));
    assert!(pool.submit(job(1, 0, 1), secs(0)).unwrap().is_some());
    assert_eq!(pool.submit(job(1, 0, 1), secs(0)), Err(PoolError::Known(JobId(1))));
    assert_eq!(pool.submit(job(2, 0, 1), secs(0)), Ok(None));
    assert_eq!(pool.submit(job(2, 0, 1), secs(0)), Err(PoolError::Known(JobId(2))));
    assert_eq!(pool.submit(job(3, 0, 1), secs(0)), Err(PoolError::Full(1)));
    assert_eq!((pool.idle(), pool.running(), pool.waiting()), (0, 1, 1));
}

fn policies() -> impl Strategy<Value = PoolPolicy> {
    let queues = Thresholds::new(vec![3_000_000, 9_000_000]).unwrap();
    (0_u32..9, 1_u32..4, 0_u32..6, prop::bool::ANY).prop_map(
        move |(which, contention, skips, local_first)| {
            let preference = if local_first { Preference::LocalFirst } else { Preference::Order };
            let rules = ResourceAwareRules { preference, ..rules(contention, skips) };
            match which {
                0 => PoolPolicy::fifo(),
                1 => PoolPolicy::shortest_first(),
                2 => PoolPolicy::workload_aware(queues.clone()),
                3 => PoolPolicy::local_shortest_first(),
                4 | 5 => PoolPolicy::workload_and_resource_aware(queues.clone(), rules),
                6 => PoolPolicy { fit: Fit::Anyone(IdleChoice::HomeFirst), ..PoolPolicy::fifo() },
                _ => PoolPolicy::resource_aware(rules),
            }
        },
    )
}

/// A step: a job of (home, megabytes) arrives, or the nth running job finishes.
#[derive(Debug, Clone)]
enum Step {
    Submit(u32, u64),
    Finish(usize),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        (0_u32..6, 1_u64..20).prop_map(|(home, size)| Step::Submit(home, size)),
        (0_usize..20).prop_map(Step::Finish),
    ];
    prop::collection::vec((0_u64..50, step), 1..120)
}

proptest! {
    #[test]
    fn every_slot_is_held_once_and_every_rule_is_kept(
        policy in policies(), slots in prop::collection::vec(0_u32..4, 6), steps in steps(),
    ) {
        let mut pool = Pool::with_slots(&slots, policy.clone(), 1000);
        let total: u32 = slots.iter().sum();
        prop_assume!(total > 0);
        let mut now = Duration::ZERO;
        let mut waiting: BTreeMap<JobId, Job> = BTreeMap::new();
        let mut running: Vec<Grant> = Vec::new();
        let mut homes: BTreeMap<JobId, NodeIndex> = BTreeMap::new();
        let mut steps = steps.into_iter();
        let mut next = steps.next();
        let mut id = 0;
        while let Some((after, step)) = next.clone() {
            let then = now + Duration::from_millis(after);
            // The caller wakes the pool at the time that the pool asked for.
            let wake = pool.next_wake().filter(|wake| *wake <= then);
            let mut grants = Vec::new();
            if let Some(wake) = wake {
                prop_assert!(wake > now || after == 0, "woken twice at {wake:?}");
                next = Some((u64::try_from((then - wake).as_millis()).unwrap(), step.clone()));
                now = wake;
                grants.extend(pool.wake(now));
                prop_assert!(pool.next_wake() != Some(now), "woken for nothing at {now:?}");
            } else {
                next = steps.next();
                now = then;
                id += 1;
                match step {
                    Step::Submit(home, size) => {
                        let job = job(id, home, size);
                        if let Ok(granted) = pool.submit(job, now) {
                            homes.insert(job.id, job.home);
                            waiting.insert(job.id, job);
                            grants.extend(granted);
                        }
                    }
                    Step::Finish(_) if running.is_empty() => {}
                    Step::Finish(which) => {
                        let ended = running.remove(which % running.len());
                        grants.extend(pool.finish(ended.job, now).unwrap());
                    }
                }
            }
            for grant in grants {
                let job = waiting.remove(&grant.job);
                prop_assert!(job.is_some(), "granted twice");
                let local = homes[&grant.job] == grant.node;
                prop_assert_eq!(grant.place == Place::Local, local);
                prop_assert!(grant.slot.0 < slots[grant.node.0 as usize]);
                if let Fit::ResourceAware(rules) = policy.fit && !local
                    && rules.preference == Preference::LocalFirst {
                    prop_assert!(waiting.values().all(|job| job.home != grant.node), "local first");
                }
                running.push(grant);
            }
            let held: BTreeSet<_> = running.iter().map(|grant| (grant.node, grant.slot)).collect();
            prop_assert_eq!(held.len(), running.len(), "a slot held twice");
            prop_assert_eq!(pool.running(), running.len());
            prop_assert_eq!(pool.waiting(), waiting.len());
            prop_assert_eq!(pool.idle() + running.len(), total as usize);
            for (node, _) in (0..).map(NodeIndex).zip(&slots) {
                let remote = running.iter().filter(|g| g.node == node && g.place == Place::Remote).count();
                prop_assert_eq!(pool.remote_running(node) as usize, remote);
            }
            match policy.fit {
                // Jobs that may run anywhere leave no slot idle.
                Fit::Anyone(_) => prop_assert!(pool.idle() == 0 || waiting.is_empty()),
                Fit::ResourceAware(rules) if rules.nothing_fits == NothingFits::TakeFirst => {
                    prop_assert!(pool.idle() == 0 || waiting.is_empty());
                }
                Fit::ResourceAware(rules) => {
                    for (node, _) in (0..).map(NodeIndex).zip(&slots) {
                        prop_assert!(pool.remote_running(node) <= rules.contention.limit(0));
                    }
                }
                Fit::LocalOnly => {
                    prop_assert!(running.iter().all(|grant| grant.place == Place::Local));
                }
            }
            // A slot at home is never idle while a job waits for it.
            for job in waiting.values() {
                let busy = running.iter().filter(|grant| grant.node == job.home).count();
                prop_assert_eq!(busy, slots[job.home.0 as usize] as usize);
            }
        }
    }

    #[test]
    fn no_job_starves_under_the_resource_aware_policy(
        contention in 1_u32..4, skips in 0_u32..6, slots in prop::collection::vec(0_u32..3, 6), busy in 0_u32..6,
    ) {
        prop_assume!(slots.iter().sum::<u32>() > 0);
        let mut pool = Pool::with_slots(&slots, PoolPolicy::resource_aware(rules(contention, skips)), 1000);
        // One node has always another job waiting, beside one job of each node.
        let mut running: VecDeque<JobId> = VecDeque::new();
        let mut wanted: BTreeSet<JobId> = BTreeSet::new();
        let mut id = 0;
        for home in 0..6 {
            wanted.insert(JobId(id));
            running.extend(pool.submit(job(id, home, 1000), secs(0)).unwrap().map(|grant| grant.job));
            id += 1;
        }
        // Time does not advance, so only skips let a job run remotely.
        for _ in 0..400 {
            running.extend(pool.submit(job(id, busy, 1000), secs(0)).unwrap().map(|grant| grant.job));
            id += 1;
            if let Some(ended) = running.pop_front() {
                wanted.remove(&ended);
                running.extend(pool.finish(ended, secs(0)).unwrap().iter().map(|grant| grant.job));
            }
        }
        prop_assert!(wanted.is_empty(), "{wanted:?} still wait");
    }
}

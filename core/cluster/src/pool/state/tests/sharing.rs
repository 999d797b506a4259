//! Several tenants: turns by slot time and weight, quotas, and slots for groups.

use super::*;
use crate::pool::tenants::QuotaError;

fn of_tenant(id: u64, tenant: u32, home: u32, megabytes: u64) -> Job {
    Job { tenant: TenantId(tenant), ..job(id, home, megabytes) }
}

fn weight(weight: u32) -> TenantRules {
    TenantRules { weight: NonZeroU32::new(weight).unwrap(), ..TenantRules::default() }
}

fn shared(slots: &[u32]) -> Pool {
    let queues = Thresholds::new(vec![50_000_000]).unwrap();
    Pool::with_slots(slots, PoolPolicy::shared(queues), 1000)
}

/// Keeps `backlog` jobs of every tenant waiting and runs for `seconds`; a byte takes `nanos_per_byte`. Returns the slot
/// seconds of each tenant.
fn shares(
    pool: &mut Pool,
    tenants: &[(u32, u64)],
    slots: usize,
    nanos_per_byte: u64,
    seconds: u64,
) -> Vec<f64> {
    let mut ends: BTreeSet<(Duration, JobId)> = BTreeSet::new();
    let mut jobs: BTreeMap<JobId, Job> = BTreeMap::new();
    let mut used = vec![0.0; tenants.len()];
    let mut id = 0;
    let mut now = Duration::ZERO;
    let mut grants = Vec::new();
    for round in 0.. {
        for (tenant, megabytes) in tenants {
            // Nobody has more than this many jobs in the system.
            let there = jobs.values().filter(|job| job.tenant == TenantId(*tenant)).count();
            for _ in there..slots + 3 {
                id += 1;
                let job = of_tenant(id, *tenant, 99, *megabytes);
                jobs.insert(job.id, job);
                grants.extend(pool.submit(job, now).unwrap());
            }
        }
        for grant in grants.drain(..) {
            let job = jobs[&grant.job];
            let took = Duration::from_nanos(job.size.0 * nanos_per_byte);
            ends.insert((now + took, job.id));
            if round > 0 {
                let index = tenants.iter().position(|(tenant, _)| TenantId(*tenant) == job.tenant).unwrap();
                used[index] += took.as_secs_f64();
            }
        }
        let (at, ended) = ends.pop_first().unwrap();
        now = at;
        if now > secs(seconds) {
            break;
        }
        jobs.remove(&ended);
        grants = pool.finish(ended, now).unwrap();
    }
    used
}

#[test]
fn slot_time_follows_the_weights_whatever_the_sizes_of_jobs() {
    // Jobs of 5 MB against jobs of 40 MB; the accelerator is 20 times slower than expected at first.
    let mut pool = shared(&[2]);
    pool.set_tenant_rules(TenantId(1), weight(3), secs(0));
    let used = shares(&mut pool, &[(1, 5), (2, 40)], 2, 20, 600);
    let ratio = used[0] / used[1];
    assert!((ratio - 3.0).abs() < 0.15, "{used:?}: {ratio}");
}

#[test]
fn a_tenant_that_did_not_wait_has_saved_nothing() {
    let mut pool = shared(&[1]);
    shares(&mut pool, &[(1, 10), (2, 10)], 1, 20, 60);
    // A newcomer shares from now on, and does not catch up with the minute before.
    for id in 0..90 {
        pool.submit(of_tenant(1_000_000 + id, u32::try_from(id % 3).unwrap() + 1, 99, 10), secs(60)).unwrap();
    }
    let mut of_newcomer = 0;
    for round in 1..=60 {
        let (job, running) = pool.running.first_key_value().unwrap();
        of_newcomer += u32::from(running.job.tenant == TenantId(3));
        let job = *job;
        pool.finish(job, secs(60) + Duration::from_millis(200) * round).unwrap();
    }
    assert!((15..=25).contains(&of_newcomer), "{of_newcomer} of 60");
}

#[test]
fn the_turn_goes_to_tenants_with_a_job_that_fits() {
    // C = 1 remote job on node 0: the second slot is for local jobs while there is one that fits.
    let mut pool = shared(&[2, 1]);
    for (id, tenant, home) in [(1, 1, 0), (2, 1, 0), (3, 1, 1)] {
        assert!(pool.submit(of_tenant(id, tenant, home, 10), secs(0)).unwrap().is_some());
    }
    // Tenant 1 has waited for longer, for node 1; tenant 2 has a job of node 0.
    assert_eq!(pool.submit(of_tenant(4, 1, 1, 1000), secs(0)).unwrap(), None);
    assert_eq!(pool.submit(of_tenant(5, 2, 0, 1000), secs(1)).unwrap(), None);
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap(), [grant(5, 0, 0, Place::Local)]);
    // If no job fits, the slot does not stay idle.
    assert_eq!(pool.finish(JobId(2), secs(3)).unwrap(), [grant(4, 0, 1, Place::Remote)]);
}

#[test]
fn jobs_of_groups_count_for_the_quota_of_waiting_jobs() {
    let rules = TenantRules { waiting_jobs: 2, ..TenantRules::default() };
    let mut pool = shared(&[1]);
    pool.set_tenant_rules(TenantId(1), rules, secs(0));
    assert!(pool.submit(of_tenant(1, 1, 0, 10), secs(0)).unwrap().is_some());
    pool.add_group_job(TenantId(1));
    assert_eq!(pool.admit_group_job(TenantId(1)), Ok(()));
    assert_eq!(pool.submit(of_tenant(2, 1, 0, 10), secs(0)), Ok(None));
    let full = PoolError::from(QuotaError::WaitingJobs { quota: 2 });
    assert_eq!(pool.submit(of_tenant(3, 1, 0, 10), secs(0)), Err(full.clone()));
    pool.add_group_job(TenantId(1));
    assert_eq!(pool.admit_group_job(TenantId(1)), Err(full));
    assert_eq!(pool.submit(of_tenant(4, 2, 0, 10), secs(0)), Ok(None));
    for _ in 0..2 {
        pool.remove_group_job(TenantId(1));
    }
    assert_eq!((pool.group_jobs(TenantId(1)), pool.submit(of_tenant(3, 1, 0, 10), secs(0))), (0, Ok(None)));
}

#[test]
fn quotas_refuse_with_what_to_do() {
    let rules =
        TenantRules { waiting_jobs: 2, waiting_bytes: 50_000_000, held_slots: 1, ..TenantRules::default() };
    let mut pool = shared(&[4]);
    pool.set_tenant_rules(TenantId(1), rules, secs(0));
    assert!(pool.submit(of_tenant(1, 1, 0, 100), secs(0)).unwrap().is_some());
    // Slots are idle, but the tenant holds as many as it may: its job waits.
    assert_eq!(pool.submit(of_tenant(2, 1, 0, 30), secs(0)).unwrap(), None);
    let bytes = QuotaError::WaitingBytes { size: 21_000_000, waiting: 30_000_000, quota: 50_000_000 };
    assert_eq!(pool.submit(of_tenant(3, 1, 0, 21), secs(0)), Err(bytes.into()));
    assert_eq!(pool.submit(of_tenant(3, 1, 0, 20), secs(0)).unwrap(), None);
    let jobs = QuotaError::WaitingJobs { quota: 2 };
    assert_eq!(pool.submit(of_tenant(4, 1, 0, 0), secs(0)), Err(jobs.into()));
    // Others are not concerned.
    assert!(pool.submit(of_tenant(5, 2, 0, 100), secs(0)).unwrap().is_some());
    assert_eq!(pool.held(TenantId(1)), 1);
    assert_eq!(pool.finish(JobId(1), secs(1)).unwrap().len(), 1);
    // A greater quota lets waiting jobs start.
    assert_eq!(pool.set_tenant_rules(TenantId(1), TenantRules::default(), secs(1)).len(), 1);
    pool.set_tenant_rules(TenantId(3), TenantRules { held_slots: 0, ..TenantRules::default() }, secs(1));
    let none = pool.submit(of_tenant(6, 3, 0, 1), secs(1)).unwrap_err();
    for (error, hint) in [(bytes.into(), "split the job"), (jobs.into(), "cancel one"), (none, "raised")] {
        assert!(PoolError::to_string(&error).contains(hint), "{error}");
    }
}

#[test]
fn jobs_leave_slots_to_groups_beyond_their_most() {
    let class = SlotClass::default();
    let mut pool = shared(&[4]);
    assert_eq!(pool.set_most_jobs(class, 1, secs(0)), []);
    assert!(pool.submit(job(1, 0, 10), secs(0)).unwrap().is_some());
    assert_eq!(pool.submit(job(2, 0, 10), secs(0)).unwrap(), None);
    let group = |pool: &mut Pool| pool.take_for_group(class, TenantId(1), AcceleratorId(0));
    let slot = group(&mut pool).unwrap();
    assert!(group(&mut pool).is_some() && group(&mut pool).is_some());
    assert_eq!(group(&mut pool), None);
    assert_eq!(pool.class(class), ClassCount { slots: 4, jobs: 1, groups: 3 });
    assert_eq!(pool.held(TenantId(1)), 3);
    // A slot that a group releases stays idle, until jobs may have it.
    assert_eq!(pool.release_from_group(TenantId(1), slot.0, slot.1, secs(1)), []);
    assert_eq!(pool.set_most_jobs(class, 2, secs(1)).len(), 1);
}

proptest! {
    #[test]
    fn slots_classes_and_quotas_agree_whatever_happens(
        steps in prop::collection::vec((0_u8..9, 0_u32..5, 0_u32..3, 0_u64..40), 1..150),
    ) {
        let mut pool = shared(&[]);
        let limit = 3;
        for tenant in 0..3 {
            let rules = TenantRules { held_slots: limit, waiting_jobs: 6, ..weight(tenant + 1) };
            pool.set_tenant_rules(TenantId(tenant), rules, secs(0));
        }
        let class = |number: u32| SlotClass::new(u8::try_from(number % 2).unwrap()).unwrap();
        let mut groups: Vec<(TenantId, NodeIndex, SlotNumber)> = Vec::new();
        let mut now = secs(0);
        for (id, (what, node, tenant, size)) in (0..).zip(steps) {
            now += Duration::from_millis(size * 40);
            let slot = SlotNumber(u32::try_from(size).unwrap() % 3);
            let runs = pool.running.keys().nth(usize::try_from(size).unwrap() % pool.running.len().max(1)).copied();
            match what {
                0 | 1 => drop(pool.add_slot(NodeIndex(node), slot, class(node + slot.0), now)),
                2 => pool.remove_slot(NodeIndex(node), slot, now),
                3..6 => {
                    let classes = [class(0), class(tenant)].into_iter().skip((size % 2) as usize).collect();
                    let _ = pool.submit(Job { classes, ..of_tenant(id, tenant, node, size) }, now);
                }
                6 => drop(runs.map(|job| pool.finish(job, now).unwrap())),
                7 => drop(runs.map(|job| pool.recalled(job, Bytes(size), now).unwrap())),
                _ => match pool.take_for_group(class(node), TenantId(tenant), AcceleratorId(0)) {
                    Some((node, slot)) => groups.push((TenantId(tenant), node, slot)),
                    None => {
                        for (tenant, node, slot) in groups.drain(..) {
                            pool.release_from_group(tenant, node, slot, now);
                        }
                    }
                },
            }
            let held: BTreeSet<_> = pool
                .running
                .values()
                .map(|job| (job.node, job.slot))
                .chain(groups.iter().map(|(_, node, slot)| (*node, *slot)))
                .collect();
            prop_assert_eq!(held.len(), pool.running() + groups.len(), "a slot held twice");
            let counts: Vec<ClassCount> = pool.classes().map(|(_, count)| count).collect();
            prop_assert_eq!(counts.iter().map(|one| one.jobs as usize).sum::<usize>(), pool.running());
            prop_assert_eq!(counts.iter().map(|one| one.groups as usize).sum::<usize>(), groups.len());
            let slots: u32 = counts.iter().map(|one| one.slots).sum();
            prop_assert_eq!(slots as usize, held.len() + pool.idle());
            for tenant in (0..3).map(TenantId) {
                let jobs = pool.running.values().filter(|job| job.job.tenant == tenant).count();
                let of_groups = groups.iter().filter(|(of, ..)| *of == tenant).count();
                prop_assert_eq!(pool.held(tenant) as usize, jobs + of_groups);
                prop_assert!(pool.held(tenant) <= limit);
            }
            // No slot is idle that a waiting job of a tenant below its quota could use.
            for (class, count) in pool.classes() {
                let idle = count.slots > count.jobs + count.groups;
                prop_assert!(!(idle && pool.is_wanted(class)), "{class:?} {count:?}");
            }
        }
    }
}

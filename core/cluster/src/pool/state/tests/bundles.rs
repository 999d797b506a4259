use super::*;
use crate::pool::state::{Entry, Quotas};
use crate::pool::tenants::{QuotaError, TenantRules};

/// A pool with so many slots on each node, and the policy of a shared pool.
fn pool_of(slots: &[u32]) -> Pool {
    Pool::with_slots(slots, PoolPolicy::shared(Thresholds::new(Vec::new()).unwrap()), 100)
}

fn bundle(ids: std::ops::Range<u64>) -> Vec<Job> {
    ids.map(|id| job(id, 9, 1)).collect()
}

fn enter(pool: &mut Pool, ids: std::ops::Range<u64>, now: Duration) -> Result<Vec<u64>, PoolError> {
    pool.enter_bundle(bundle(ids), Entry::new(now), now).map(|grants| started(&grants))
}

fn started(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|grant| grant.job.0).collect()
}

fn finish(pool: &mut Pool, id: u64, now: Duration) -> Vec<u64> {
    started(&pool.finish(JobId(id), now).unwrap())
}

#[test]
fn a_bundle_starts_when_all_of_its_slots_are_idle_and_takes_none_before() {
    let mut pool = pool_of(&[2, 1]);
    assert_eq!(enter(&mut pool, 1..3, secs(0)), Ok(vec![1, 2]));
    assert_eq!(enter(&mut pool, 11..14, secs(0)), Ok(vec![]));
    assert_eq!((pool.idle(), pool.waiting()), (1, 3));
    // A job takes the idle slot.
    assert!(pool.submit(job(20, 9, 1), secs(1)).unwrap().is_some());
    assert_eq!(finish(&mut pool, 1, secs(2)), [0; 0]);
    assert_eq!(finish(&mut pool, 20, secs(2)), [0; 0]);
    assert_eq!(finish(&mut pool, 2, secs(2)), [11, 12, 13]);
    assert_eq!((pool.idle(), pool.waiting(), pool.running()), (0, 0, 3));
}

#[test]
fn what_is_cancelled_of_a_bundle_ends_all_of_it() {
    let mut pool = pool_of(&[1]);
    enter(&mut pool, 1..3, secs(0)).unwrap();
    assert_eq!(enter(&mut pool, 2..4, secs(0)), Err(PoolError::Known(JobId(2))));
    assert_eq!(pool.cancel(JobId(2)), Some(job(2, 9, 1)));
    assert_eq!((pool.waiting(), pool.cancel(JobId(1))), (0, None));
}

#[test]
fn the_slots_that_an_old_bundle_needs_are_kept_for_it_and_its_tenants_next_one_is_young() {
    let mut pool = pool_of(&[2]);
    for id in [1, 2] {
        pool.submit(job(id, 9, 1), secs(0)).unwrap();
    }
    assert_eq!(enter(&mut pool, 11..13, secs(0)), Ok(vec![]));
    assert_eq!(enter(&mut pool, 21..23, secs(0)), Ok(vec![]));
    pool.submit(job(3, 9, 1), secs(1)).unwrap();
    assert_eq!(finish(&mut pool, 1, secs(2)), [3], "a young bundle keeps nothing");
    pool.submit(job(4, 9, 1), secs(3)).unwrap();
    // 30 s, and 100 ms for each megabyte.
    let old = Duration::from_millis(30_200);
    assert_eq!(pool.next_wake(), Some(old));
    assert_eq!(pool.wake(old), []);
    assert!(pool.is_kept(SlotClass::default()) && pool.next_wake() != Some(old));
    assert_eq!(finish(&mut pool, 3, secs(31)), [0; 0]);
    assert_eq!(pool.submit(job(5, 9, 1), secs(31)), Ok(None));
    assert_eq!(finish(&mut pool, 2, secs(32)), [11, 12]);
    // The second bundle is old 30.2 s after that.
    assert!(!pool.is_kept(SlotClass::default()));
    assert_eq!(finish(&mut pool, 11, secs(40)), [4]);
    assert_eq!(finish(&mut pool, 12, secs(40)), [5]);
    assert_eq!(pool.next_wake(), Some(secs(32) + old));
}

#[test]
fn a_bundle_that_the_pool_is_too_small_for_is_given_up_after_30_s_and_keeps_nothing() {
    let mut pool = pool_of(&[2]);
    assert_eq!(enter(&mut pool, 1..4, secs(0)), Ok(vec![]));
    assert_eq!((pool.given_up(secs(29)), pool.next_wake()), (vec![], Some(secs(30))));
    assert_eq!(pool.given_up(secs(30)), [1, 2, 3].map(JobId));
    assert_eq!(pool.wake(secs(100)), []);
    assert!(pool.submit(job(9, 9, 1), secs(100)).unwrap().is_some());
    // A third slot comes.
    assert_eq!(started(&pool.add_slot(NodeIndex(5), SlotNumber(0), SlotClass::default(), secs(101))), [0; 0]);
    assert_eq!(pool.given_up(secs(200)), []);
    assert_eq!(finish(&mut pool, 9, secs(102)), [1, 2, 3]);
}

#[test]
fn a_bundle_counts_for_its_tenants_quotas() {
    let mut pool = pool_of(&[4]);
    let rules = TenantRules { held_slots: 3, waiting_jobs: 2, ..TenantRules::default() };
    pool.set_tenant_rules(TenantId(0), rules, secs(0));
    let too_many = QuotaError::HeldSlots { wanted: 4, quota: 3 };
    assert_eq!(enter(&mut pool, 1..5, secs(0)), Err(too_many.into()));
    assert_eq!(enter(&mut pool, 1..4, secs(0)), Ok(vec![1, 2, 3]), "what starts at once does not wait");
    assert_eq!(enter(&mut pool, 11..14, secs(0)), Err(QuotaError::WaitingJobs { quota: 2 }.into()));
    let back = Entry { since: secs(0), quotas: Quotas::Waive };
    assert_eq!(pool.enter_bundle(bundle(11..14), back, secs(1)), Ok(vec![]));
    assert_eq!(pool.submit(job(20, 9, 1), secs(1)), Err(QuotaError::WaitingJobs { quota: 2 }.into()));
    for id in [1, 2] {
        assert_eq!(finish(&mut pool, id, secs(2)), [0; 0], "the quota is not free as yet");
    }
    assert_eq!(finish(&mut pool, 3, secs(2)), [11, 12, 13]);
}

proptest! {
    #[test]
    fn bundles_and_jobs_start_whole_and_all_of_them_start_some_time(
        slots in 1_u32..6, quota in 1_u32..8,
        steps in prop::collection::vec((0_u64..4000, 0_u8..6, 0_usize..9, 0_u32..2), 1..120),
    ) {
        let mut pool = pool_of(&[slots]);
        pool.set_tenant_rules(TenantId(1), TenantRules { held_slots: quota, ..TenantRules::default() }, secs(0));
        let (mut now, mut running): (Duration, Vec<JobId>) = (secs(0), Vec::new());
        let mut bundles: Vec<BTreeSet<JobId>> = Vec::new();
        let mut id = 0;
        let mut play = |pool: &mut Pool, running: &mut Vec<JobId>, what, which: usize, tenant, now| {
            let of_tenant = |id| Job { tenant: TenantId(tenant), ..job(id, 9, 1) };
            match what {
                0 | 1 => {
                    id += 1;
                    pool.submit(of_tenant(id), now).map(|grant| grant.into_iter().collect()).unwrap_or_default()
                }
                2 => {
                    let size = which as u64 + 2;
                    let jobs: Vec<Job> = (id + 1..=id + size).map(of_tenant).collect();
                    id += size;
                    let ids = jobs.iter().map(|job| job.id).collect();
                    match pool.enter_bundle(jobs, Entry::new(now), now) {
                        Ok(grants) => {
                            bundles.push(ids);
                            grants
                        }
                        Err(_) => Vec::new(),
                    }
                }
                3 => {
                    pool.cancel(JobId(which as u64 * 3));
                    pool.wake(now)
                }
                _ if running.is_empty() => pool.wake(now),
                _ => {
                    let ended = running.swap_remove(which % running.len());
                    pool.finish(ended, now).unwrap()
                }
            }
        };
        let mut ended = 0;
        for step in steps.into_iter().map(Some).chain(std::iter::repeat_n(None, 2000)) {
            let grants = match step {
                Some((time, what, which, tenant)) => {
                    now += Duration::from_millis(time);
                    play(&mut pool, &mut running, what, which, tenant, now)
                }
                // In the end jobs only end, and what the pool is too small for is given up.
                None => {
                    now += secs(1);
                    for job in pool.given_up(now) {
                        pool.cancel(job);
                    }
                    ended += 1;
                    play(&mut pool, &mut running, 5, 0, 0, now)
                }
            };
            let started: BTreeSet<JobId> = grants.iter().map(|grant| grant.job).collect();
            prop_assert_eq!(started.len(), grants.len());
            running.extend(started.iter().copied());
            prop_assert_eq!(pool.running(), running.len());
            prop_assert_eq!(pool.idle() + pool.running(), slots as usize);
            prop_assert!(pool.held(TenantId(1)) <= quota);
            if ended > 0 && pool.waiting() == 0 && running.is_empty() {
                break;
            }
        }
        prop_assert_eq!((pool.waiting(), running.len()), (0, 0), "somebody waits for ever");
    }
}

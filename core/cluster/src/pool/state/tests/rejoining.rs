use super::*;
use crate::pool::state::{Entry, Quotas};
use crate::pool::tenants::{QuotaError, TenantRules};
use crate::pool::{SlotClass, TenantId};

fn entry(since: u64, quotas: Quotas) -> Entry {
    Entry { since: secs(since), quotas }
}

#[test]
fn a_job_that_comes_back_has_its_first_arrival() {
    let mut pool = Pool::with_slots(&[1], PoolPolicy::fifo(), 10);
    pool.submit(job(1, 0, 1), secs(10)).unwrap();
    pool.submit(job(2, 0, 1), secs(20)).unwrap();
    assert_eq!(pool.enter(job(3, 0, 1), entry(5, Quotas::Apply), secs(30)).unwrap(), None);
    // An arrival in the future counts as now.
    assert_eq!(pool.enter(job(4, 0, 1), entry(99, Quotas::Apply), secs(30)).unwrap(), None);
    pool.submit(job(5, 0, 1), secs(40)).unwrap();
    let mut running = JobId(1);
    for next in [3, 2, 4, 5] {
        let grants = pool.finish(running, secs(50)).unwrap();
        assert_eq!(grants, [grant(next, 0, 0, Place::Local)]);
        running = JobId(next);
    }
}

#[test]
fn quotas_refuse_a_job_that_comes_back_unless_they_are_waived() {
    let mut pool = Pool::with_slots(&[1], PoolPolicy::fifo(), 10);
    let rules = TenantRules { waiting_jobs: 1, ..TenantRules::default() };
    pool.set_tenant_rules(TenantId(0), rules, secs(0));
    pool.submit(job(1, 0, 1), secs(0)).unwrap();
    pool.submit(job(2, 0, 1), secs(0)).unwrap();
    let refused = pool.enter(job(3, 0, 1), entry(0, Quotas::Apply), secs(1)).unwrap_err();
    assert_eq!(refused, PoolError::Quota(QuotaError::WaitingJobs { quota: 1 }));
    assert_eq!(pool.enter(job(3, 0, 1), entry(0, Quotas::Waive), secs(1)), Ok(None));
    assert_eq!(pool.waiting(), 2);
}

#[test]
fn a_job_that_held_a_slot_before_counts_for_its_tenant_and_gives_the_slot_back() {
    let mut pool = Pool::new(PoolPolicy::fifo(), 10);
    let rules = TenantRules { held_slots: 1, ..TenantRules::default() };
    pool.set_tenant_rules(TenantId(0), rules, secs(0));
    let (node, slot, class) = (NodeIndex(0), SlotNumber(3), SlotClass::default());
    pool.adopt(job(1, 1, 1), node, slot, class, secs(0));
    pool.adopt(job(9, 1, 1), node, slot, class, secs(0));
    assert_eq!((pool.idle(), pool.running(), pool.remote_running(node)), (0, 1, 1));
    assert_eq!((pool.held(TenantId(0)), pool.class(class).jobs), (1, 1));
    pool.add_slot(node, SlotNumber(4), class, secs(0));
    assert_eq!(pool.submit(job(2, 1, 1), secs(1)), Ok(None), "the quota is used up");
    let grants = pool.finish_after(JobId(1), Bytes(10), secs(2)).unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!((pool.idle(), pool.running(), pool.remote_running(node)), (1, 1, 1));
}

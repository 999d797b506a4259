//! Slots of several classes that come and go, residency, aging, and jobs that no slot can run.

use super::*;
use crate::pool::policy::Aging;

fn class(number: u8) -> SlotClass {
    SlotClass::new(number).unwrap()
}

/// A job that runs in slots of the given classes only.
fn job_for(id: u64, home: u32, classes: &[u8]) -> Job {
    Job { classes: classes.iter().copied().map(class).collect(), ..job(id, home, 10) }
}

/// A pool with a slot 0 on each node, of the given classes.
fn pool_of(classes: &[u8]) -> Pool {
    let mut pool = Pool::new(PoolPolicy::shared(Thresholds::new(vec![]).unwrap()), 10);
    for (node, number) in (0..).zip(classes) {
        assert_eq!(pool.add_slot(NodeIndex(node), SlotNumber(0), class(*number), secs(0)), []);
    }
    pool
}

#[test]
fn a_job_gets_slots_of_its_classes_only() {
    let mut pool = pool_of(&[0, 1]);
    assert_eq!(pool.submit(job_for(1, 9, &[1]), secs(0)).unwrap(), Some(grant(1, 1, 0, Place::Remote)));
    assert_eq!(pool.submit(job_for(2, 9, &[1]), secs(0)).unwrap(), None);
    assert_eq!(pool.submit(job_for(3, 9, &[0, 1]), secs(0)).unwrap(), Some(grant(3, 0, 0, Place::Remote)));
    assert_eq!(pool.submit(job_for(4, 9, &[0]), secs(0)).unwrap(), None);
    assert_eq!(pool.finish(JobId(3), secs(1)).unwrap(), [grant(4, 0, 0, Place::Remote)]);
    assert_eq!(pool.finish(JobId(1), secs(1)).unwrap(), [grant(2, 1, 0, Place::Remote)]);
}

#[test]
fn a_home_without_a_compatible_slot_counts_as_bare() {
    // Node 0 has a slot, but of a class in which the job does not run. So the job does not wait for it.
    let mut pool = Pool::new(PoolPolicy::resource_aware(rules(1, 5)), 10);
    for (node, number) in [(0, 0), (1, 1), (2, 1)] {
        pool.add_slot(NodeIndex(node), SlotNumber(0), class(number), secs(0));
    }
    assert!(pool.submit(job_for(1, 0, &[1]), secs(0)).unwrap().is_some());
    // Node 1 is a home with a compatible slot, which is busy: this job waits although node 2 is idle.
    assert_eq!(pool.submit(job_for(2, 1, &[1]), secs(0)).unwrap(), None);
    // When the last slot of its home leaves, the job is bare and goes anywhere.
    pool.remove_slot(NodeIndex(1), SlotNumber(0), secs(0));
    assert_eq!(pool.finish(JobId(1), secs(0)).unwrap(), [grant(2, 2, 0, Place::Remote)]);
    assert_eq!(pool.class(class(1)).slots, 1);
}

#[test]
fn a_slot_that_leaves_while_it_is_held_is_not_granted_again() {
    let mut pool = pool_of(&[0]);
    assert!(pool.submit(job_for(1, 0, &[0]), secs(0)).unwrap().is_some());
    assert_eq!(pool.submit(job_for(2, 0, &[0]), secs(0)).unwrap(), None);
    pool.remove_slot(NodeIndex(0), SlotNumber(0), secs(1));
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap(), []);
    assert_eq!(pool.class(class(0)), ClassCount::default());
    // The slot comes back.
    let grants = pool.add_slot(NodeIndex(0), SlotNumber(0), class(0), secs(3));
    assert_eq!(grants, [grant(2, 0, 0, Place::Local)]);
}

#[test]
fn a_job_without_a_compatible_slot_is_given_up_after_30_s() {
    let mut pool = pool_of(&[0]);
    assert_eq!(pool.submit(job_for(1, 0, &[1]), secs(5)).unwrap(), None);
    assert_eq!((pool.next_wake(), pool.given_up(secs(34))), (Some(secs(35)), vec![]));
    assert_eq!(pool.given_up(secs(35)), [JobId(1)]);
    // A slot that comes in time ends the wait.
    assert_eq!(pool.add_slot(NodeIndex(1), SlotNumber(0), class(1), secs(34)).len(), 1);
    assert_eq!((pool.next_wake(), pool.given_up(secs(99))), (None, vec![]));
    // The 30 s begin when the last compatible slot leaves.
    assert_eq!(pool.submit(job_for(2, 0, &[1]), secs(40)).unwrap(), None);
    pool.remove_slot(NodeIndex(1), SlotNumber(0), secs(50));
    assert_eq!(pool.given_up(secs(99)), []);
    assert_eq!(pool.finish(JobId(1), secs(60)).unwrap(), []);
    assert_eq!((pool.given_up(secs(89)), pool.given_up(secs(90))), (vec![], vec![JobId(2)]));
    assert!(pool.cancel(JobId(2)).is_some());
    assert_eq!(pool.given_up(secs(99)), []);
}

#[test]
fn residency_breaks_ties_between_slots() {
    let aes = AcceleratorId(7);
    let wants_aes = |id: u64, home: u32| Job { accelerator: aes, ..job(id, home, 10) };
    // Two slots on node 0, one each on nodes 1 and 2.
    let policy = PoolPolicy::shared(Thresholds::new(vec![]).unwrap());
    let mut pool = Pool::with_slots(&[2, 1, 1], policy, 10);
    pool.set_resident(NodeIndex(0), SlotNumber(1), Some(aes));
    pool.set_resident(NodeIndex(2), SlotNumber(0), Some(aes));
    // At home: the slot that has the bitstream, though the other has been idle longer.
    assert_eq!(pool.submit(wants_aes(1, 0), secs(0)).unwrap(), Some(grant(1, 0, 1, Place::Local)));
    // Elsewhere: of equally calm nodes the one that has the bitstream.
    assert_eq!(pool.submit(wants_aes(2, 9), secs(0)).unwrap(), Some(grant(2, 2, 0, Place::Remote)));
    // A calmer node comes before one that has the bitstream.
    pool.set_resident(NodeIndex(0), SlotNumber(0), Some(aes));
    assert_eq!(pool.submit(job(3, 9, 10), secs(0)).unwrap(), Some(grant(3, 0, 0, Place::Remote)));
    pool.finish(JobId(2), secs(1)).unwrap();
    pool.finish(JobId(1), secs(1)).unwrap();
    pool.set_resident(NodeIndex(0), SlotNumber(1), Some(aes));
    pool.set_resident(NodeIndex(2), SlotNumber(0), None);
    assert_eq!(pool.submit(wants_aes(4, 9), secs(1)).unwrap(), Some(grant(4, 1, 0, Place::Remote)));
}

#[test]
fn residency_never_orders_jobs() {
    let mut pool = Pool::with_slots(&[1], PoolPolicy::shared(Thresholds::new(vec![]).unwrap()), 10);
    assert!(pool.submit(job(1, 9, 10), secs(0)).unwrap().is_some());
    let other = Job { accelerator: AcceleratorId(1), ..job(2, 9, 10) };
    assert_eq!(pool.submit(other, secs(0)).unwrap(), None);
    assert_eq!(pool.submit(job(3, 9, 10), secs(1)).unwrap(), None);
    pool.set_resident(NodeIndex(0), SlotNumber(0), Some(AcceleratorId(0)));
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap(), [grant(2, 0, 0, Place::Remote)]);
}

#[test]
fn an_old_job_moves_to_the_first_queue() {
    let queues = Thresholds::new(vec![50_000_000]).unwrap();
    for (aging, first) in [(Aging::DEFAULT, 2), (Aging::Never, 3)] {
        let policy = PoolPolicy { aging, ..PoolPolicy::shared(queues.clone()) };
        let mut pool = Pool::with_slots(&[1], policy, 10);
        assert!(pool.submit(job(1, 9, 10), secs(0)).unwrap().is_some());
        // 100 MB are old after 30 s + 10 · 1 s.
        assert_eq!(pool.submit(job(2, 9, 100), secs(0)).unwrap(), None);
        assert_eq!(pool.submit(job(3, 9, 10), secs(1)).unwrap(), None);
        assert_eq!(pool.submit(job(4, 9, 10), secs(1)).unwrap(), None);
        // Just before, the small job comes first.
        assert_eq!(pool.finish(JobId(1), Duration::from_millis(39_999)).unwrap()[0].job, JobId(3));
        let next = pool.finish(JobId(3), secs(40)).unwrap()[0].job;
        assert_eq!(next, JobId(if first == 2 { 2 } else { 4 }), "{aging:?}");
    }
}

#[test]
fn a_recalled_job_waits_again_with_its_first_arrival_and_its_remaining_bytes() {
    let queues = Thresholds::new(vec![50_000_000]).unwrap();
    let mut pool = Pool::with_slots(&[1], PoolPolicy::shared(queues), 2);
    assert!(pool.submit(job(1, 9, 100), secs(0)).unwrap().is_some());
    assert_eq!(pool.submit(job(2, 9, 10), secs(1)).unwrap(), None);
    assert_eq!(pool.submit(job(3, 9, 10), secs(2)).unwrap(), None);
    // Another job is offered the slot first, and no quota refuses the recalled one.
    let grants = pool.recalled(JobId(1), Bytes(20_000_000), secs(3)).unwrap();
    assert_eq!(grants, [grant(2, 0, 0, Place::Remote)]);
    assert_eq!(pool.waiting(), 2);
    // With 20 MB left it is in the first queue, and before the job that arrived later.
    assert_eq!(pool.finish(JobId(2), secs(4)).unwrap(), [grant(1, 0, 0, Place::Remote)]);
    // Nothing is left: the job has ended.
    assert_eq!(pool.recalled(JobId(1), Bytes(0), secs(5)).unwrap(), [grant(3, 0, 0, Place::Remote)]);
    // Nobody else wants the slot: the job goes on in it.
    let grants = pool.recalled(JobId(3), Bytes(1), secs(6)).unwrap();
    assert_eq!(grants, [grant(3, 0, 0, Place::Remote)]);
    assert_eq!(pool.recalled(JobId(9), Bytes(1), secs(6)), Err(PoolError::NotRunning(JobId(9))));
}

#[test]
fn bytes_beyond_the_workload_queue_again_at_their_size_and_arrive_anew() {
    let queues = Thresholds::new(vec![50_000_000]).unwrap();
    let mut pool = Pool::with_slots(&[1], PoolPolicy::shared(queues), 9);
    assert!(pool.submit(job(1, 9, 1), secs(0)).unwrap().is_some());
    assert_eq!(pool.submit(job(2, 9, 10), secs(1)).unwrap(), None);
    assert_eq!(pool.submit(job(3, 9, 10), secs(1)).unwrap(), None);
    // Job 1 named 1 MB and wants 400 MB more.
    assert_eq!(pool.finish(JobId(1), secs(2)).unwrap(), [grant(2, 0, 0, Place::Remote)]);
    assert_eq!(pool.submit(job(1, 9, 400), secs(2)).unwrap(), None);
    assert_eq!(pool.finish(JobId(2), secs(4)).unwrap(), [grant(3, 0, 0, Place::Remote)]);
}

#[test]
fn who_does_not_use_its_slot_is_recalled_when_others_wait_for_such_a_slot() {
    let mut pool = pool_of(&[0, 1]);
    for (id, number) in [(1, 0), (2, 1)] {
        assert!(pool.submit(job_for(id, 9, &[number]), secs(0)).unwrap().is_some());
        pool.set_use(JobId(id), Use::Unused);
    }
    assert_eq!(pool.recallable_in(|class| pool.is_wanted(class)), []);
    assert_eq!(pool.submit(job_for(3, 9, &[1]), secs(0)).unwrap(), None);
    assert_eq!(pool.recallable_in(|class| pool.is_wanted(class)), [JobId(2)]);
    pool.set_use(JobId(2), Use::Used);
    assert_eq!(pool.recallable_in(|class| pool.is_wanted(class)), []);
}

use super::super::reference::{Offer, Waiting, decide};
use super::super::{Home, NodeIndex, Place};
use super::*;

const NOW: Duration = Duration::from_secs(100);

fn rules() -> ResourceAwareRules {
    ResourceAwareRules {
        contention: Contention::Jobs(NonZeroU32::new(2).unwrap()),
        skips: 5,
        patience: Patience::DEFAULT,
        preference: Preference::Order,
        nothing_fits: NothingFits::KeepIdle,
    }
}

/// A job of `megabytes` that arrives now; nodes from 10 on have no slots.
fn job(id: u64, home: u32, megabytes: u64) -> Waiting {
    let job = Job::of_one_tenant(JobId(id), NodeIndex(home), Bytes(megabytes * 1_000_000));
    let home = if home < 10 { Home::Pooled } else { Home::Bare };
    Waiting { job, home, since: NOW, skipped: 0 }
}

/// The job that gets a slot of node 0, and the jobs that were skipped.
fn ask(policy: &PoolPolicy, jobs: &[Waiting], remote_running: u32) -> (Option<(u64, Place)>, Vec<u64>) {
    let mut ranked: Vec<(Rank, &Waiting)> = (0..)
        .zip(jobs)
        .map(|(number, one)| (policy.rank(&one.job, Arrival { at: NOW, number }), one))
        .collect();
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    let offer = Offer { node: NodeIndex(0), remote_running };
    let decision = decide(&policy.fit, ranked.iter().copied(), offer, NOW);
    let id_of = |rank: &Rank| ranked.iter().find(|(is, _)| is == rank).unwrap().1.job.id.0;
    (decision.pick.map(|(_, id, place)| (id.0, place)), decision.skipped.iter().map(id_of).collect())
}

#[test]
fn without_regard_to_place_the_first_in_the_order_gets_the_slot() {
    let jobs = [job(1, 3, 500), job(2, 0, 90), job(3, 12, 20), job(4, 0, 30)];
    let queues = Thresholds::new(vec![100_000_000]).unwrap();
    let expected = [
        (PoolPolicy::fifo(), Some((1, Place::Remote))),
        (PoolPolicy::shortest_first(), Some((3, Place::Remote))),
        // Jobs 2, 3 and 4 are in the first queue, in the order of arrival.
        (PoolPolicy::workload_aware(queues), Some((2, Place::Local))),
        (PoolPolicy::local_shortest_first(), Some((4, Place::Local))),
    ];
    for (policy, pick) in expected {
        assert_eq!(ask(&policy, &jobs, 9), (pick, vec![]), "{policy:?}");
    }
}

#[test]
fn the_three_kinds_of_jobs_are_told_apart() {
    let policy = PoolPolicy::resource_aware(rules());
    let (own, bare, other) = (job(1, 0, 10), job(2, 12, 10), job(3, 4, 10));
    // Columns: jobs in order, running remote jobs, job that gets the slot, skipped jobs.
    type Row<'a> = (&'a [Waiting], u32, Option<u64>, &'a [u64]);
    let table: [Row; 8] = [
        (&[own, bare, other], 0, Some(1), &[]),
        (&[bare, own], 0, Some(2), &[]),
        (&[other, bare, own], 0, Some(2), &[3]),
        (&[other, own], 0, Some(1), &[3]),
        (&[other], 0, None, &[3]),
        // C = 2 remote jobs run: only local jobs fit, and no job counts as skipped.
        (&[other, bare, own], 2, Some(1), &[]),
        (&[bare, other], 2, None, &[]),
        (&[], 0, None, &[]),
    ];
    for (jobs, remote, pick, skipped) in table {
        let (got, passed) = ask(&policy, jobs, remote);
        assert_eq!((got.map(|got| got.0), passed.as_slice()), (pick, skipped), "{jobs:?} {remote}");
    }
}

#[test]
fn a_job_of_another_fpga_node_has_waited_long_by_time_or_by_times_passed_over() {
    let policy = PoolPolicy::resource_aware(rules());
    // 300 MB wait 3 s for a slot at home.
    let waited = |ms: u64| Waiting { since: NOW - Duration::from_millis(ms), ..job(1, 4, 300) };
    assert_eq!(ask(&policy, &[waited(2999)], 0), (None, vec![1]));
    assert_eq!(ask(&policy, &[waited(3000)], 0), (Some((1, Place::Remote)), vec![]));
    let passed = |skipped: u32| Waiting { skipped, ..job(1, 4, 300) };
    assert_eq!(ask(&policy, &[passed(4)], 0), (None, vec![1]));
    assert_eq!(ask(&policy, &[passed(5)], 0), (Some((1, Place::Remote)), vec![]));
    // Neither lets a job run on a node that runs C remote jobs already.
    assert_eq!(ask(&policy, &[passed(5)], 2), (None, vec![]));
}

#[test]
fn local_first_takes_any_local_job_before_a_remote_one() {
    let policy =
        PoolPolicy::resource_aware(ResourceAwareRules { preference: Preference::LocalFirst, ..rules() });
    let jobs = [job(1, 12, 10), job(2, 13, 10), job(3, 0, 10)];
    assert_eq!(ask(&policy, &jobs, 0), (Some((3, Place::Local)), vec![]));
    assert_eq!(ask(&policy, &jobs[..2], 0), (Some((1, Place::Remote)), vec![]));
}

#[test]
fn both_together_go_through_the_queues_and_never_leave_a_slot_idle() {
    let queues = Thresholds::new(vec![50_000_000]).unwrap();
    let policy = PoolPolicy::workload_and_resource_aware(queues, rules());
    // The small remote job is skipped for the large local one,
    let jobs = [job(1, 0, 400), job(2, 4, 10)];
    assert_eq!(ask(&policy, &jobs, 0), (Some((1, Place::Local)), vec![2]));
    // and gets the slot if no other job fits, even beyond C.
    let jobs = [job(1, 12, 400), job(2, 4, 10), job(3, 5, 20)];
    assert_eq!(ask(&policy, &jobs, 2), (Some((2, Place::Remote)), vec![]));
    assert_eq!(ask(&policy, &jobs[1..], 0), (Some((2, Place::Remote)), vec![2, 3]));
}

#[test]
fn half_of_a_nodes_slots_serve_remote_jobs_and_at_least_one() {
    let limits = [1, 2, 3, 4, 8].map(|slots| Contention::HalfOfSlots.limit(slots));
    assert_eq!(limits, [1, 1, 2, 2, 4]);
    assert_eq!(Contention::Jobs(NonZeroU32::new(3).unwrap()).limit(8), 3);
}

#[test]
fn a_job_is_old_after_30_s_and_ten_times_w_for_its_size() {
    let queues = Thresholds::new(vec![]).unwrap();
    let shared = PoolPolicy::shared(queues.clone());
    // 30 s + 10 · 10 ms/MB · 100 MB.
    assert_eq!(shared.old_age(Bytes(100_000_000)), Some(Duration::from_secs(40)));
    let paper = PoolPolicy::workload_and_resource_aware(queues, rules());
    assert_eq!(paper.old_age(Bytes(100_000_000)), None);
}

#[test]
fn patience_is_time_per_megabyte_and_does_not_overflow() {
    assert_eq!(Patience(10_000_000).limit(Bytes(4_000_000)), Duration::from_millis(40));
    assert_eq!(Patience(u64::MAX).limit(Bytes(u64::MAX)), Duration::from_nanos(u64::MAX));
    assert_eq!(Patience(7).limit(Bytes(0)), Duration::ZERO);
}

//! Bundles: all slots at the same time, or none.

use super::*;

impl Bench {
    /// Jobs of a bundle, which has the number of the first one.
    fn want_many(&mut self, jobs: std::ops::Range<u128>, size: u32) -> Vec<Output> {
        let bundle = Some(Bundle { id: BundleUuid(jobs.start), size });
        jobs.flat_map(|job| self.want_in(job, bundle)).collect()
    }

    fn want_in(&mut self, job: u128, bundle: Option<Bundle>) -> Vec<Output> {
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 10 }, bundle };
        let outputs = self.want_with(job, wanted, None);
        self.state.policy.check();
        outputs
    }

    fn prepared(&mut self, leases: &[(u64, Lease)]) -> Vec<Output> {
        let prepared = |(manager, lease): &(u64, Lease)| {
            self.manager(*manager, ManagerToBroker::Prepared { lease: lease.id })
        };
        leases.iter().flat_map(prepared).collect()
    }

    fn free(&mut self, leases: &[(u64, Lease)]) -> Vec<Output> {
        leases
            .iter()
            .flat_map(|(manager, lease)| self.report(*manager, lease.slot, SlotStatus::Free))
            .collect()
    }
}

fn jobs(leases: &[(u64, Lease)]) -> Vec<u128> {
    let mut jobs: Vec<u128> = leases.iter().map(|(_, lease)| lease.job.0).collect();
    jobs.sort_unstable();
    jobs
}

fn offers(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::ToClient(_, ToClient::Offer(_)))).count()
}

#[test]
fn two_programs_that_both_want_all_slots_get_them_one_after_the_other() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 2]);
    bench.register(2, vec![SlotStatus::Free; 2]);
    // Their jobs come mixed.
    let [first, second] = [1, 11].map(|id| Some(Bundle { id: BundleUuid(id), size: 4 }));
    let mut outputs = Vec::new();
    for job in 1..=4 {
        outputs.extend(bench.want_in(job, first));
        outputs.extend(bench.want_in(job + 10, second));
    }
    let leases = prepares(&outputs);
    assert_eq!(jobs(&leases), [1, 2, 3, 4]);
    let (last, others) = leases.split_last().unwrap();
    assert_eq!(offers(&bench.prepared(others)), 0);
    assert_eq!(offers(&bench.prepared(std::slice::from_ref(last))), 4);
    for (manager, lease) in &leases {
        bench.report(*manager, lease.slot, SlotStatus::Held(lease.clone(), Activity::Busy));
    }
    assert_eq!(prepares(&bench.free(others)), [], "three slots are not enough");
    assert_eq!(jobs(&prepares(&bench.free(std::slice::from_ref(last)))), [11, 12, 13, 14]);
}

#[test]
fn a_bundle_one_of_whose_leases_is_refused_gives_the_others_back_and_tries_again() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 3]);
    let leases = prepares(&bench.want_many(1..4, 3));
    let arrival = |bench: &Bench| bench.state.broker.job(JobUuid(1)).unwrap().first_arrival;
    let arrived = arrival(&bench);
    bench.pass(Millis(500));
    bench.prepared(&leases[..2]);
    let why = Refusal::LoadFailed;
    let refused = bench.manager(1, ManagerToBroker::Refused { lease: leases[2].1.id, why });
    assert_eq!((recalls(&refused), offers(&refused), prepares(&refused)), (2, 0, vec![]));
    bench.state.policy.check();
    let again = prepares(&bench.free(&leases));
    assert_eq!((jobs(&again), arrival(&bench)), (vec![1, 2, 3], arrived));
    assert_eq!(offers(&bench.prepared(&again)), 3);
    assert_eq!(bench.state.broker.jobs().count(), 0);
}

#[test]
fn a_bundle_that_its_tenants_quota_does_not_allow_is_refused_at_once() {
    let mut bench = Bench::new("[default]\nheld-slots = 3\n");
    bench.register(1, vec![SlotStatus::Free; 4]);
    let ended = cancelled(&bench.want_many(1..5, 4));
    assert_eq!(ended.len(), 4);
    for (_, why, message) in ended {
        assert_eq!(why, CancelCause::Quota);
        assert!(message.contains("may hold 3 slots, and this needs 4"), "{message}");
    }
    assert_eq!(jobs(&prepares(&bench.want_many(11..14, 3))), [11, 12, 13]);
    assert_eq!(prepares(&bench.run(20)), [], "the quota is used up");
}

#[test]
fn a_bundle_for_which_the_pool_has_too_few_slots_is_cancelled_after_30_s_and_jobs_go_on() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 2]);
    bench.want_many(1..4, 3);
    assert_eq!(prepares(&bench.run(20)).len(), 1);
    assert_eq!(cancelled(&bench.pass(Millis(29_900))), []);
    let ended = cancelled(&bench.pass(Millis(200)));
    let whys: Vec<_> = ended.iter().map(|(job, why, _)| (*job, *why)).collect();
    assert_eq!(whys, [1, 2, 3].map(|job| (job, CancelCause::NoFittingSlot)));
    assert!(ended[0].2.contains("fewer than 3 lent slots could run aes"), "{}", ended[0].2);
    assert_eq!(prepares(&bench.run(21)).len(), 1);
    bench.state.policy.check();
}

#[test]
fn a_bundle_that_is_not_complete_holds_nothing_and_is_cancelled_after_a_minute() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 3]);
    assert_eq!(prepares(&bench.want_many(1..3, 3)), []);
    let other_size = bench.want_in(3, Some(Bundle { id: BundleUuid(1), size: 2 }));
    assert_eq!(cancelled(&other_size)[0].1, CancelCause::Incomplete);
    assert_eq!(prepares(&bench.run(20)).len(), 1);
    assert_eq!(cancelled(&bench.pass(Millis(59_900))), []);
    let ended = cancelled(&bench.pass(Millis(200)));
    assert_eq!(ended.iter().map(|(job, ..)| *job).collect::<Vec<_>>(), [1, 2]);
    assert!(ended[0].2.contains("only 2 of the 3 jobs"), "{}", ended[0].2);
    bench.state.policy.check();
}

#[test]
fn a_job_that_leaves_its_bundle_and_comes_back_completes_it_again() {
    let mut bench = Bench::new("");
    bench.want_many(1..4, 3);
    bench.cancel(2);
    bench.state.policy.check();
    assert_eq!(prepares(&bench.register(1, vec![SlotStatus::Free; 3])), []);
    let bundle = Some(Bundle { id: BundleUuid(1), size: 3 });
    assert_eq!(jobs(&prepares(&bench.want_in(2, bundle))), [1, 2, 3]);
}

#[test]
fn an_old_bundle_is_kept_slots_for_although_jobs_never_cease_to_come() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 2]);
    let mut running: VecDeque<(u64, Lease)> = VecDeque::new();
    for job in [100, 101] {
        let leases = prepares(&bench.run(job));
        bench.prepared(&leases);
        running.extend(leases);
    }
    bench.want_many(1..3, 2);
    let mut started_after = None;
    for second in 0..60 {
        // Each second a job ends, and another one is there before.
        bench.run(200 + second);
        let outputs = bench.pass(Millis::from_secs(1));
        assert_eq!(prepares(&outputs), []);
        let ended: Vec<_> = running.pop_front().into_iter().collect();
        let granted = prepares(&bench.free(&ended));
        bench.state.policy.check();
        if jobs(&granted) == [1, 2] {
            started_after = Some(second);
            break;
        }
        assert!(granted.len() <= 1, "{granted:?}");
        bench.prepared(&granted);
        running.extend(granted);
    }
    assert!((30..34).contains(&started_after.unwrap()), "{started_after:?}");
}

#[test]
fn a_group_gives_its_slack_back_for_a_bundle() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 4]);
    let mut leases = Leases::new();
    for job in 11..=14 {
        leases.extend(prepares(&bench.want(job, "aes", throughput_group(3600, 0, 4))));
    }
    for (manager, lease) in &leases {
        bench.hold(*manager, lease);
    }
    assert_eq!(recalls(&bench.want_many(1..4, 3)), 4);
    assert_eq!(jobs(&prepares(&bench.free(&leases))), [1, 2, 3]);
    bench.state.policy.check();
}

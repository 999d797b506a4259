use super::*;

#[test]
fn a_tenant_without_a_quota_leaves_half_of_the_places_to_others() {
    let mut bench = Bench::new("");
    let half = MOST_WAITING as u128 / 2;
    for job in 0..half {
        assert_eq!(cancelled(&bench.run(job)), []);
    }
    let refused = cancelled(&bench.run(half));
    assert!(matches!(refused.as_slice(), [(_, CancelCause::Quota, _)]), "{refused:?}");
    for job in half..2 * half {
        assert_eq!(cancelled(&bench.run_of_another(job)), []);
    }
}

#[test]
fn names_that_have_gone_make_room_while_leases_and_quotas_stay() {
    let mut bench = Bench::new("[default]\nheld-slots = 1\n");
    bench.register(1, vec![SlotStatus::Free]);
    let (_, lease) = prepares(&bench.run(1)).remove(0);
    bench.hold(1, &lease);
    bench.run(2);
    for number in 0..600 {
        let client = Client { tenant: Tenant::new(&format!("gone-{number}")), home: None };
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 10 }, bundle: None };
        let job = JobUuid(1000 + number);
        let want = Want { job, wanted, ticket: None, attempt: Attempt(1) };
        bench.input(Input::Want(ConnectionId(2000), client.clone(), want));
        bench.input(Input::Cancel(ConnectionId(2000), client, job));
    }
    assert!(bench.state.policy.has_used_up_names());
    bench.pass(Millis::from_secs(1));
    assert!(!bench.state.policy.has_used_up_names());
    bench.state.policy.check();

    assert_eq!(prepares(&bench.register(2, vec![SlotStatus::Free; 2])), [], "the tenant holds its one slot");
    assert_eq!((prepares(&bench.run_of_another(3)).len(), prepares(&bench.run_of_another(4)).len()), (1, 0));
    let given = prepares(&bench.report(1, lease.slot, SlotStatus::Free));
    assert_eq!(given.iter().map(|(_, lease)| lease.job).collect::<Vec<_>>(), [JobUuid(2)]);
    bench.state.policy.check();
}

//! Managers that make up names: they harm their own slots only.

use super::*;

#[test]
fn a_node_that_lends_many_kinds_of_slots_leaves_kinds_to_others() {
    let mut bench = Bench::new("");
    // Each board of the node, and each time that it registers, has 64 regions that nobody else has.
    for manager in (1..=5).chain(1..=5) {
        let region = |slot: u64| Some(format!("{} {manager} {slot}", bench.now.now.0).into());
        let slot = |slot| LentSlot { region: region(slot), ..LentSlot::default() };
        let board = Board { name: "b".into(), kind: "a10".into(), shell: None, node: "liar".into() };
        let lent = LentBoard { board, slots: (0..64).map(slot).collect() };
        bench.register_board(manager, lent, vec![SlotStatus::Free; 64]);
        assert_eq!(bench.state.policy.class_views().len(), 8, "of 64");
        bench.input(Input::ManagerClosed(ConnectionId(manager)));
        bench.pass(Millis::from_secs(1));
    }
    assert_eq!(bench.state.policy.class_views().len(), 0, "no board has one any more");
    bench.register(6, vec![SlotStatus::Free]);
    assert_eq!(prepares(&bench.run(1)).iter().map(|(manager, _)| *manager).collect::<Vec<_>>(), [6]);
}

#[test]
fn kinds_of_slots_are_forgotten_with_the_last_board_that_has_them() {
    let mut bench = Bench::new("");
    let register = |bench: &mut Bench, shell: u32| {
        let shell = Some(format!("{shell}").into());
        let board = Board { name: "b".into(), kind: "a10".into(), shell, node: "n1".into() };
        let lent = LentBoard { board, slots: vec![LentSlot::default()] };
        bench.register_board(1, lent, vec![SlotStatus::Free]);
    };
    for shell in 0..70 {
        register(&mut bench, shell);
        assert_eq!(bench.state.policy.class_views().len(), 1);
        bench.input(Input::ManagerClosed(ConnectionId(1)));
        // The broker waits for managers that come back.
        bench.pass(Millis::from_secs(60));
    }
    register(&mut bench, 70);
    assert_eq!(prepares(&bench.run(1)).len(), 1, "the last board gets a job");
    bench.state.policy.check();
}

#[test]
fn tenants_and_bitstreams_that_a_node_makes_up_do_not_use_up_those_of_others() {
    let mut bench = Bench::new("[default]\nheld-slots = 1\n");
    for time in 0..3 {
        let held = |slot: u8| {
            let SlotStatus::Held(lease, activity) = bench.former(slot.into(), Work::Run { bytes: 10 }, 60)
            else {
                panic!("not held")
            };
            let tenant = Tenant::new(&format!("made-up-{time}-{slot}"));
            let digest = Digest::from_bytes([time, slot].repeat(16).try_into().unwrap());
            SlotStatus::Held(Lease { tenant, digest, ..lease }, activity)
        };
        let held = (0..50).map(held).collect();
        bench.register(1, held);
        bench.state.policy.check();
        bench.input(Input::ManagerClosed(ConnectionId(1)));
    }
    let tenants = bench.state.view(&Viewer::Operator, bench.now).tenants;
    assert_eq!(tenants.len(), 64, "of 150");
    assert_eq!(bench.state.policy.named_bitstreams(), 64, "of 150");
    bench.register(2, vec![SlotStatus::Free; 2]);
    assert_eq!((prepares(&bench.run(1)).len(), prepares(&bench.run(2)).len()), (1, 0), "quotas count");
}

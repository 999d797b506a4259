//! Groups with goals: which of their jobs wait, and which slots they have.

use super::*;

#[test]
fn a_group_gets_idle_slots_and_gives_them_back_for_a_job_that_waits() {
    let mut bench = Bench::new("[default]\nguaranteed-slots = 1\n");
    bench.register(1, vec![SlotStatus::Free; 4]);
    let mut leases = Leases::new();
    for job in 1..=4 {
        leases.extend(prepares(&bench.want(job, "aes", throughput_group(3600, 1, 4))));
    }
    assert_eq!(leases.len(), 4, "no job waits: the group has all slots");
    for (manager, lease) in &leases {
        bench.hold(*manager, lease);
    }
    let view = bench.state.view(&Viewer::Operator, bench.now).groups.remove(0);
    assert_eq!((view.held, view.given, view.waiting, view.done), (4, 4, 0, 4));
    assert_eq!((view.kind.as_str(), view.outlook()), ("a10", v1::Outlook::Unspecified));
    let recalled = bench.run(10);
    assert!(recalls(&recalled) >= 1, "{recalled:?}");
    let Some(Output::ToManager(_, BrokerToManager::Recall { lease: id })) =
        recalled.iter().find(|output| matches!(output, Output::ToManager(_, BrokerToManager::Recall { .. })))
    else {
        panic!("no Recall");
    };
    let (manager, lease) = leases.iter().find(|(_, lease)| lease.id == *id).unwrap();
    let granted = prepares(&bench.report(*manager, lease.slot, SlotStatus::Free));
    assert_eq!(granted.iter().map(|(_, lease)| lease.job).collect::<Vec<_>>(), [JobUuid(10)]);
}

#[test]
fn a_group_whose_leases_never_pause_is_controlled_by_what_managers_report_meanwhile() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 4]);
    let mut asked = Vec::new();
    for job in 1..=4 {
        asked.extend(bench.want(job, "aes", throughput_group(3600, 0, 4)));
    }
    let every = |output: &Output| match output {
        Output::ToManager(_, BrokerToManager::Prepare { usage_every, .. }) => Some(*usage_every),
        _ => None,
    };
    assert_eq!(asked.iter().filter_map(every).collect::<Vec<_>>(), [Some(Millis::from_secs(1)); 4]);
    let leases = prepares(&asked);
    for (manager, lease) in &leases {
        bench.hold(*manager, lease);
    }
    // Each slot does ten actions a second, and the goal is one: one slot is enough.
    let mut recalled = 0;
    for second in 1..=5 {
        for (manager, lease) in &leases {
            let busy = Millis::from_secs(second);
            bench.report_usage(*manager, lease, Usage { bytes: 10 * second, actions: 10 * second, busy });
        }
        recalled += recalls(&bench.pass(Millis::from_secs(1)));
    }
    assert_eq!(recalled, 3, "each lease is recalled once");
    let (manager, last) = leases.last().unwrap();
    bench.report(*manager, last.slot, SlotStatus::Free);
}

#[test]
fn a_group_does_not_give_the_slots_of_a_lost_manager_to_its_next_job() {
    let mut bench = Bench::of_groups(4);
    bench.register(1, vec![SlotStatus::Free; 2]);
    bench.register(2, vec![SlotStatus::Free; 2]);
    for (job, expected) in [(1, 1), (2, 1), (3, 2)] {
        let (manager, lease) = prepares(&bench.want(job, "aes", group(9, 4))).remove(0);
        assert_eq!(manager, expected);
        bench.hold(manager, &lease);
    }
    // The first manager's slots are the group's, without jobs, when that manager is lost.
    for slot in [0, 1].map(SlotIndex) {
        bench.report(1, slot, SlotStatus::Free);
    }
    bench.input(Input::ManagerClosed(ConnectionId(1)));
    let granted = prepares(&bench.want(4, "aes", group(9, 4)));
    assert_eq!(granted.iter().map(|(manager, _)| *manager).collect::<Vec<_>>(), [2]);
    bench.state.policy.check();
}

#[test]
fn a_group_that_found_no_slots_gets_those_of_a_manager_that_comes_back() {
    let mut bench = Bench::of_groups(2);
    bench.register(1, vec![SlotStatus::Free; 2]);
    bench.input(Input::ManagerClosed(ConnectionId(1)));
    for job in 1..=2 {
        assert_eq!(prepares(&bench.want(job, "aes", group(9, 2))), []);
    }
    assert_eq!(prepares(&bench.register(1, vec![SlotStatus::Free; 2])).len(), 2);
    assert_eq!(cancelled(&bench.pass(Millis::from_secs(31))), []);
}

#[test]
fn a_group_whose_kind_of_slots_is_gone_moves_to_another_kind_or_is_told_after_30_s() {
    let library = |boards: &[&str]| {
        let variant = |board: &&str| {
            let digest = Digest::from_bytes([1; 32]);
            format!("[[accelerators.aes]]\nboard = \"{board}\"\ndigest = \"{digest}\"\n")
        };
        Catalog::parse(&boards.iter().map(variant).collect::<String>()).unwrap()
    };
    for (boards, moves) in [(&["a10", "u50"][..], true), (&["a10"], false)] {
        let mut bench = Bench::of_groups(2);
        bench.input(Input::Catalog(library(boards)));
        bench.register(1, vec![SlotStatus::Free; 2]);
        bench.register_kind(2, "u50", vec![SlotStatus::Free]);
        let held = (1..=4).flat_map(|job| prepares(&bench.want(job, "aes", group(9, 4)))).collect::<Leases>();
        assert_eq!(held.iter().map(|(manager, _)| *manager).collect::<Vec<_>>(), [1, 1]);
        held.iter().for_each(|(manager, lease)| bench.hold(*manager, lease));
        let drained = bench.input(Input::ManagerClosed(ConnectionId(1)));
        bench.state.policy.check();
        let granted = prepares(&drained).iter().map(|(manager, _)| *manager).collect::<Vec<_>>();
        assert_eq!(granted, if moves { vec![2] } else { vec![] });
        // A job that comes now goes where the others of the group are.
        assert_eq!(cancelled(&bench.want(5, "aes", group(9, 4))), []);
        let told = cancelled(&bench.pass(Millis::from_secs(31)));
        let told = told.iter().map(|(job, why, _)| (*job, *why)).collect::<Vec<_>>();
        let without_slot = [3, 4, 5].map(|job| (job, CancelCause::NoFittingSlot));
        assert_eq!(told, if moves { vec![] } else { without_slot.to_vec() });
        bench.state.policy.check();
    }
}

#[test]
fn a_group_whose_bitstream_was_at_fault_gets_slots_when_it_may_be_tried_again() {
    let mut bench = Bench::of_groups(3);
    bench.register(1, vec![SlotStatus::Free; 3]);
    let mut todo = Leases::new();
    for job in 1..=3 {
        todo.extend(prepares(&bench.want(job, "aes", group(9, 3))));
    }
    let (manager, held) = todo.pop().unwrap();
    bench.hold(manager, &held);
    for (manager, lease) in todo {
        bench.manager(manager, ManagerToBroker::Refused { lease: lease.id, why: Refusal::BadBitstream });
        bench.report(manager, lease.slot, SlotStatus::Free);
    }
    assert_eq!(prepares(&bench.pass(Millis::from_secs(50))), []);
    assert_eq!(prepares(&bench.pass(Millis::from_secs(15))).len(), 2);
}

/// A group of up to `most` slots that needs them all.
fn group(id: u128, most: u32) -> Work {
    let goal = Goal::Deadline { actions: 1_000_000, within: Millis::from_secs(1000) };
    Work::Group(Group { id: GroupUuid(id), goal, least: 0, most })
}

#[test]
fn no_more_jobs_of_a_group_wait_than_it_may_have_slots() {
    // Columns: slots, jobs of their own that have slots, maximum of the group, jobs that ask; slots, waiting, refused.
    let table =
        [(1, 1, 2, 5, (0, 2, 3)), (2, 0, 2, 5, (2, 2, 1)), (4, 0, 2, 3, (2, 1, 0)), (4, 3, 3, 3, (1, 2, 0))];
    for (slots, of_jobs, most, asking, expected) in table {
        let mut bench = Bench::of_groups(slots);
        bench.register(1, vec![SlotStatus::Free; slots as usize]);
        (0..of_jobs).for_each(|job| drop(bench.run(100 + job)));
        let (mut granted, mut refused) = (0, Vec::new());
        for job in 1..=asking {
            let outputs = bench.want(job, "aes", group(9, most));
            granted += prepares(&outputs).len();
            refused.extend(cancelled(&outputs));
            bench.state.policy.check();
        }
        let view = bench.state.view(&Viewer::Operator, bench.now).groups.remove(0);
        assert_eq!((granted, view.waiting, refused.len()), expected, "{slots} {of_jobs} {most}");
        // Who was not refused may ask again.
        let last = asking - refused.len() as u128;
        assert_eq!(cancelled(&bench.want(last, "aes", group(9, most))), []);
        for (_, why, message) in refused {
            assert_eq!(why, CancelCause::Full);
            assert!(message.contains(&format!("{most} jobs of the group wait already")), "{message}");
        }
    }
}

#[test]
fn jobs_of_groups_and_others_have_one_quota_of_waiting_jobs() {
    let tenants = "[default]\nguaranteed-slots = 2\nwaiting-jobs = 2\n";
    let is_refused = |outputs: &[Output]| {
        let cancelled = cancelled(outputs);
        assert!(cancelled.iter().all(|(_, why, _)| *why == CancelCause::Quota), "{cancelled:?}");
        !cancelled.is_empty()
    };
    let mut bench =
        Bench::with(GoalRules { floor: Floor::None, ..GoalRules::default() }, Millis(100), tenants);
    bench.register(1, vec![SlotStatus::Free; 2]);
    // Columns: job, its work; whether it is refused. Two get slots, and two wait.
    let run = Work::Run { bytes: 10 };
    let table = [
        (1, "aes", group(9, 8), false),
        (2, "aes", group(9, 8), false),
        (3, "aes", group(9, 8), false),
        (4, "unknown", group(8, 8), false),
        (5, "aes", group(9, 8), true),
        (6, "aes", group(7, 8), true),
        (7, "unknown", group(8, 8), true),
        (8, "aes", run, true),
        (3, "aes", group(9, 8), false),
    ];
    for (job, accelerator, work, expected) in table {
        assert_eq!(is_refused(&bench.want(job, accelerator, work)), expected, "{job}");
        bench.state.policy.check();
    }
    assert_eq!(
        bench.state.view(&Viewer::Operator, bench.now).groups.len(),
        1,
        "no group of refused jobs is open"
    );
    // A job that is given up leaves its place to another one.
    for (gone, next, work) in [(4, 8, run), (3, 5, group(9, 8))] {
        bench.cancel(gone);
        assert!(!is_refused(&bench.want(next, "aes", work)), "{next}");
    }
    assert!(is_refused(&bench.run(10)));
}

#[test]
fn a_group_without_actions_leaves_all_slots_but_one_to_jobs_that_wait() {
    let mut bench = Bench::new("[default]\nguaranteed-slots = 3\n");
    bench.register(1, vec![SlotStatus::Free; 4]);
    // Each slot does one action a second, and the goal is three.
    let mut leases = Leases::new();
    for job in 1..=4 {
        leases.extend(prepares(&bench.want(job, "aes", throughput_group(3 * 3600, 0, 4))));
    }
    for (manager, lease) in &leases {
        bench.hold(*manager, lease);
    }
    let mut recalled = 0;
    for second in 1..=10 {
        for (manager, lease) in &leases {
            let busy = Millis::from_secs(second);
            bench.report_usage(*manager, lease, Usage { bytes: 10, actions: second, busy });
        }
        recalled += recalls(&bench.pass(Millis::from_secs(1)));
    }
    assert_eq!(recalled, 1);
    let (manager, last) = leases.pop().unwrap();
    bench.report(manager, last.slot, SlotStatus::Free);
    assert_eq!(prepares(&bench.run(20)).len(), 1);
    // It has a right to what it uses.
    assert_eq!((prepares(&bench.run(21)), recalls(&bench.pass(Millis::from_secs(1)))), (vec![], 0));
    for (manager, lease) in leases {
        bench.report(manager, lease.slot, SlotStatus::Held(lease, Activity::Idle));
    }
    assert_eq!(recalls(&bench.pass(Millis::from_secs(15))), 2);
    let view = bench.state.view(&Viewer::Operator, bench.now).groups.remove(0);
    assert_eq!((view.held, view.given), (3, 1));
}

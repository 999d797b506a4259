//! What a broker that takes over knows by the leases of managers and the tickets of clients.

use super::*;
use fpga_pool_leases::lease::Ticket;

impl Bench {
    fn seconds_ago(&self, seconds: u64) -> WallTime {
        WallTime(self.now.wall.0 - seconds * 1000)
    }

    /// A lease of the first manager that was there before.
    pub(super) fn former(&self, slot: u32, work: Work, seconds: u64) -> SlotStatus {
        let lease = Lease {
            id: LeaseId(500 + u128::from(slot)),
            incarnation: Incarnation(7),
            slot: SlotIndex(slot),
            job: JobUuid(500 + u128::from(slot)),
            tenant: Tenant::new("a"),
            digest: Digest::from_bytes([1; 32]),
            work,
            first_arrival: self.seconds_ago(seconds),
        };
        SlotStatus::Held(lease, Activity::Busy)
    }
}

#[test]
fn a_broker_that_takes_over_counts_the_leases_that_managers_tell() {
    let mut bench = Bench::new("[default]\nheld-slots = 1\n");
    let held = bench.former(0, Work::Run { bytes: 10 }, 60);
    bench.register(1, vec![held, SlotStatus::Free]);
    assert_eq!(prepares(&bench.run(1)), [], "the tenant has its one slot");
    let granted = prepares(&bench.report(1, SlotIndex(0), SlotStatus::Free));
    assert_eq!(granted.len(), 1);
}

#[test]
fn a_job_gets_the_slot_that_had_its_bitstream_when_the_manager_registered_unless_the_slot_was_away_since() {
    for (was_away, gets) in [(false, SlotIndex(1)), (true, SlotIndex(0))] {
        let mut bench = Bench::new("");
        let loaded = LentSlot { loaded: Some(Digest::from_bytes([1; 32])), ..LentSlot::default() };
        let lent = LentBoard { board: board(1, "a10"), slots: vec![LentSlot::default(), loaded] };
        bench.register_board(1, lent, vec![SlotStatus::Free; 2]);
        if was_away {
            bench.report(1, SlotIndex(1), SlotStatus::Bad);
            bench.report(1, SlotIndex(1), SlotStatus::Free);
        }
        let (_, lease) = prepares(&bench.run(1)).remove(0);
        assert_eq!(lease.slot, gets);
    }
}

#[test]
fn a_group_that_is_taken_over_keeps_its_time_its_minimum_and_its_slots() {
    let mut bench = Bench::listening("[default]\nguaranteed-slots = 3\n");
    let goal = Goal::Deadline { actions: 1_000_000, within: Millis::from_secs(900) };
    let group = Work::Group(Group { id: GroupUuid(9), goal, least: 2, most: 4 });
    // Three of five slots are the group's; the oldest of its leases tells when it arrived.
    let held = [(0, 400), (1, 600), (2, 500)].map(|(slot, seconds)| bench.former(slot, group, seconds));
    let slots = held.into_iter().chain([SlotStatus::Free, SlotStatus::Free]).collect();
    bench.register(1, slots);
    (20..24).for_each(|job| drop(bench.run(job)));
    let outputs = bench.pass(Millis::from_secs(2));
    assert_eq!((prepares(&outputs).len(), recalls(&outputs)), (2, 0), "jobs have what is free");
    let left = |bench: &Bench| {
        let view = bench.state.view(&Viewer::Operator, bench.now).groups.remove(0);
        assert_eq!((view.held, view.given), (3, 3));
        view.left_ms
    };
    assert_eq!(left(&bench), 298_000);
    // A job of the group shows a ticket that is older still.
    let ticket = Ticket { job: JobUuid(1), first_arrival: bench.seconds_ago(700) };
    let sealed = TicketKey::of(&[1; 32]).seal(ticket, &Tenant::new("a"));
    let wanted = Wanted { accelerator: "aes".into(), work: group, bundle: None };
    bench.want_with(1, wanted, Some(sealed));
    assert_eq!(left(&bench), 200_000);
    bench.state.policy.check();
    // Until an action has finished it asks for the slots that it has.
    bench.pass(Millis::from_secs(30));
    assert_eq!(bench.state.view(&Viewer::Operator, bench.now).groups[0].given, 3);
}

#[test]
fn a_group_whose_minimum_is_guaranteed_no_more_is_taken_over_without_it() {
    let mut bench = Bench::listening("[default]\nguaranteed-slots = 1\n");
    let group = throughput_group(3600, 2, 4);
    let slots = (0..2).map(|slot| bench.former(slot, group, 60)).collect();
    bench.register(1, slots);
    bench.run(20);
    assert_eq!(recalls(&bench.pass(Millis::from_secs(2))), 1);
    let view = bench.state.view(&Viewer::Operator, bench.now).groups.remove(0);
    assert_eq!((view.held, view.given), (2, 1));
}

#[test]
fn a_manager_that_comes_back_late_brings_a_groups_slots_as_they_were() {
    let mut bench = Bench::listening("[default]\nguaranteed-slots = 2\n");
    bench.pass(Millis::from_secs(2));
    let group = throughput_group(3600, 0, 4);
    bench.run(20);
    let slots =
        vec![bench.former(0, group, 60), bench.former(1, group, 60), SlotStatus::Free, SlotStatus::Free];
    let outputs = bench.register(1, slots);
    assert_eq!((prepares(&outputs).len(), recalls(&outputs)), (1, 0));
    bench.run(21);
    assert_eq!(recalls(&bench.run(22)), 0, "it is guaranteed two slots");
}

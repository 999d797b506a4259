use super::*;
use crate::ids::{GroupUuid, JobUuid, StepNumber};
use crate::lease::{Goal, Group, Usage, Work};
use crate::messages::Activity;
use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use fpga_core::units::WallTime;

const BROKER: ConnectionId = ConnectionId(1);
const CLIENT: ConnectionId = ConnectionId(100);
const STEP: Millis = Millis::from_secs(1);
const SLOT: SlotIndex = SlotIndex(0);
const LIFE: Incarnation = Incarnation(7);
/// What the broker says of the usage of leases.
const EVERY: Option<Millis> = Some(Millis(100));

/// A manager with one slot and its clock.
struct Bench {
    manager: Manager,
    now: MonotonicTime,
}

fn lease(id: u128) -> Lease {
    Lease {
        id: LeaseId(id),
        incarnation: LIFE,
        slot: SLOT,
        job: JobUuid(id),
        tenant: Tenant::new("a"),
        digest: Digest::from_bytes([1; 32]),
        work: Work::Run { bytes: 10 },
        first_arrival: WallTime(1),
    }
}

fn group(id: u128) -> Lease {
    let goal = Goal::Throughput { actions_per_hour: 60 };
    let group = Group { id: GroupUuid(1), goal, least: 0, most: 1 };
    Lease { work: Work::Group(group), ..lease(id) }
}

impl Bench {
    /// A manager that has registered with a broker.
    fn new() -> Self {
        let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
        let config = Config { incarnation: LIFE, endpoint, slots: 1, longest_step: STEP };
        let (manager, first) = Manager::new(config, Rules::default());
        assert_eq!(first, [Action::ReapChildren]);
        let mut bench = Self { manager, now: MonotonicTime(1_000_000) };
        bench.event(Event::ChildrenReaped);
        bench.event(Event::BrokerConnected(BROKER));
        bench
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        self.manager.handle(event, self.now)
    }

    fn broker(&mut self, message: BrokerToManager) -> Vec<Action> {
        self.event(Event::Broker(BROKER, message))
    }

    fn prepare(&mut self, term: u64, lease: Lease) -> Vec<Action> {
        self.broker(BrokerToManager::Prepare { term: Term(term), lease, usage_every: EVERY })
    }

    fn loaded(&mut self, id: u128, outcome: LoadOutcome) -> Vec<Action> {
        self.event(Event::Loaded { slot: SLOT, lease: LeaseId(id), outcome })
    }

    fn client(&mut self, connection: ConnectionId, message: ClientToManager) -> Vec<Action> {
        self.event(Event::Client(connection, message))
    }

    fn attach(&mut self, id: u128) -> Vec<Action> {
        self.client(CLIENT, ClientToManager::Attach { lease: LeaseId(id) })
    }

    fn step(&mut self, id: u128, step: u64) -> Vec<Action> {
        self.client(CLIENT, ClientToManager::Step { lease: LeaseId(id), step: StepNumber(step) })
    }

    fn step_ended(&mut self, id: u128, step: u64) -> Vec<Action> {
        let usage = Usage { bytes: 5, actions: 1, busy: Millis(3) };
        self.event(Event::StepEnded { slot: SLOT, lease: LeaseId(id), step: StepNumber(step), usage })
    }

    /// A client holds the slot by this lease.
    fn hold(&mut self, lease: Lease) {
        let id = lease.id.0;
        self.prepare(1, lease);
        self.loaded(id, LoadOutcome::Loaded);
        self.attach(id);
        assert!(matches!(self.status(), SlotStatus::Held(held, Activity::Busy) if held.id.0 == id));
    }

    /// Lets time pass; at each timer's moment the manager is called, as its owner does.
    fn pass(&mut self, time: Millis) -> Vec<Action> {
        let until = self.now + time;
        let mut actions = Vec::new();
        while let Some(next) = self.manager.next_deadline().filter(|next| *next <= until) {
            self.now = next;
            actions.extend(self.manager.tick(next));
        }
        self.now = until;
        actions
    }

    fn status(&self) -> SlotStatus {
        self.manager.slot(SLOT).unwrap()
    }
}

fn refusal(actions: &[Action]) -> Option<Refusal> {
    actions.iter().find_map(|action| match action {
        Action::ToBroker(ManagerToBroker::Refused { why, .. }) => Some(*why),
        _ => None,
    })
}

fn report(actions: &[Action]) -> Option<&SlotReport> {
    actions.iter().rev().find_map(|action| match action {
        Action::ToBroker(ManagerToBroker::Slot(report)) => Some(report),
        _ => None,
    })
}

fn causes(actions: &[Action]) -> Vec<SlotCause> {
    let cause = |action: &Action| match action {
        Action::ToBroker(ManagerToBroker::Slot(report)) => Some(report.why),
        _ => None,
    };
    actions.iter().filter_map(cause).collect()
}

#[test]
fn a_lease_goes_from_prepare_over_attach_and_steps_to_release() {
    let mut bench = Bench::new();
    let (id, slot) = (LeaseId(1), SLOT);
    let digest = lease(1).digest;
    assert_eq!(bench.prepare(1, lease(1)), [Action::Load { slot, lease: id, digest }]);
    assert_eq!(
        bench.loaded(1, LoadOutcome::Loaded),
        [Action::ToBroker(ManagerToBroker::Prepared { lease: id })]
    );
    let attached = bench.attach(1);
    assert_eq!(attached[0], Action::ToClient(CLIENT, ManagerToClient::Attached { lease: id }));
    assert_eq!(bench.step(1, 0), [Action::Start { slot, lease: id, step: StepNumber(0) }]);
    let ended = bench.step_ended(1, 0);
    let done = ManagerToClient::StepDone { lease: id, step: StepNumber(0) };
    assert_eq!(ended, [Action::ToClient(CLIENT, done)]);
    let released = bench.client(CLIENT, ClientToManager::Release { lease: id });
    let report = report(&released).unwrap();
    assert_eq!((report.why, report.usage.bytes, report.usage.actions), (SlotCause::Released, 5, 1));
    assert_eq!(bench.status(), SlotStatus::Free);
}

#[test]
fn a_prepare_is_refused_by_term_incarnation_slot_state_and_end() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    assert_eq!(refusal(&bench.prepare(2, lease(2))), Some(Refusal::NotFree));
    let old = Refusal::OldTerm { max_term: Term(2) };
    assert_eq!(refusal(&bench.prepare(1, lease(3))), Some(old));
    bench.event(Event::ClientClosed(CLIENT));
    assert_eq!(refusal(&bench.prepare(2, lease(1))), Some(Refusal::Ended));
    let other = Lease { incarnation: Incarnation(6), ..lease(4) };
    assert_eq!(refusal(&bench.prepare(2, other)), Some(Refusal::OtherIncarnation));
    let nowhere = Lease { slot: SlotIndex(9), ..lease(5) };
    assert_eq!(refusal(&bench.prepare(2, nowhere)), Some(Refusal::NoSuchSlot));
    assert_eq!(refusal(&bench.prepare(2, lease(6))), None);
}

#[test]
fn a_repeated_prepare_has_the_same_answer_and_loads_once() {
    let mut bench = Bench::new();
    bench.prepare(1, lease(1));
    assert_eq!(bench.prepare(1, lease(1)), []);
    let prepared = [Action::ToBroker(ManagerToBroker::Prepared { lease: LeaseId(1) })];
    assert_eq!(bench.loaded(1, LoadOutcome::Loaded), prepared);
    assert_eq!(bench.prepare(1, lease(1)), prepared);
    bench.attach(1);
    assert_eq!(bench.prepare(1, lease(1)), prepared);
}

#[test]
fn only_the_present_connection_of_a_broker_counts() {
    let mut bench = Bench::new();
    let registered = bench.event(Event::BrokerConnected(ConnectionId(2)));
    assert!(matches!(registered[..], [Action::ToBroker(ManagerToBroker::Register { .. })]));
    assert_eq!(bench.prepare(1, lease(1)), []);
    bench.event(Event::BrokerClosed(BROKER));
    assert_eq!(bench.manager.broker_connection(), Some(ConnectionId(2)));
}

#[test]
fn nothing_is_registered_before_the_children_of_the_former_life_are_reaped() {
    let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
    let config = Config { incarnation: LIFE, endpoint, slots: 1, longest_step: STEP };
    let (mut manager, _) = Manager::new(config, Rules::default());
    let now = MonotonicTime::START;
    assert_eq!(manager.handle(Event::BrokerConnected(BROKER), now), []);
    let prepare = BrokerToManager::Prepare { term: Term(1), lease: lease(1), usage_every: EVERY };
    assert_eq!(manager.handle(Event::Broker(BROKER, prepare), now), []);
    let registered = manager.handle(Event::ChildrenReaped, now);
    assert!(matches!(registered[..], [Action::ToBroker(ManagerToBroker::Register { .. })]));
}

#[test]
fn a_client_that_does_not_attach_within_two_seconds_of_the_load_finds_its_lease_gone() {
    let mut bench = Bench::new();
    bench.prepare(1, lease(1));
    bench.pass(Millis::from_secs(20));
    bench.loaded(1, LoadOutcome::Loaded);
    bench.pass(Millis(1999));
    assert!(matches!(bench.status(), SlotStatus::Reserved(_)));
    assert_eq!(causes(&bench.pass(Millis(1))), [SlotCause::NotAttached]);
    let gone = bench.attach(1);
    let answer = Action::ToClient(CLIENT, ManagerToClient::Gone { lease: LeaseId(1) });
    assert_eq!(gone, [answer, Action::CloseClient(CLIENT)]);
}

#[test]
fn a_silent_client_loses_its_slot_and_tasks_that_do_not_end_are_killed_within_35_s() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    bench.step(1, 0);
    bench.pass(Millis(4999));
    bench.event(Event::ClientAlive(CLIENT));
    bench.pass(Millis(4999));
    assert!(matches!(bench.status(), SlotStatus::Held(..)));
    assert_eq!(causes(&bench.pass(Millis(1))), [SlotCause::Silent]);
    let killed = bench.pass(timing::DRAIN - timing::REAP);
    assert_eq!(killed, [Action::Kill { slot: SLOT, lease: LeaseId(1) }]);
    assert!(matches!(bench.status(), SlotStatus::Draining(_)));
    let reaped = Event::Killed { slot: SLOT, lease: LeaseId(1), outcome: Outcome::Done };
    assert_eq!(causes(&bench.event(reaped)), [SlotCause::Killed]);
    assert_eq!(bench.status(), SlotStatus::Free);
}

#[test]
fn steps_that_waited_and_start_do_not_keep_the_slot_of_a_dead_client() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    for step in 0..5 {
        bench.step(1, step);
        assert_eq!(causes(&bench.pass(Millis(999))), []);
        bench.step_ended(1, step);
        let silent = if step == 4 { vec![SlotCause::Silent] } else { Vec::new() };
        assert_eq!(causes(&bench.pass(Millis(1))), silent);
    }
    assert_eq!(bench.status(), SlotStatus::Free);
}

#[test]
fn a_slot_whose_process_is_not_reaped_is_bad_until_a_probe_succeeds() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    bench.step(1, 0);
    bench.event(Event::ClientClosed(CLIENT));
    assert_eq!(causes(&bench.pass(timing::DRAIN)), [SlotCause::NotReaped]);
    assert_eq!(bench.status(), SlotStatus::Bad);
    assert_eq!(refusal(&bench.prepare(1, lease(2))), Some(Refusal::NotFree));
    assert_eq!(bench.pass(timing::PROBE), [Action::Probe(SLOT)]);
    bench.event(Event::Probed { slot: SLOT, outcome: Outcome::Failed });
    assert_eq!(bench.pass(timing::PROBE), [Action::Probe(SLOT)]);
    bench.event(Event::Probed { slot: SLOT, outcome: Outcome::Done });
    assert_eq!(bench.status(), SlotStatus::Free);
}

#[test]
fn a_recalled_client_yields_or_loses_its_slot_a_second_after_the_longest_step() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    bench.step(1, 0);
    let recall = BrokerToManager::Recall { lease: LeaseId(1) };
    let yields = [Action::ToClient(CLIENT, ManagerToClient::Yield { lease: LeaseId(1) })];
    assert_eq!(bench.broker(recall.clone()), yields);
    assert_eq!(bench.broker(recall), []);
    assert_eq!(causes(&bench.pass(STEP + timing::YIELD_SLACK)), [SlotCause::YieldOverdue]);
    assert_eq!(causes(&bench.step_ended(1, 0)), [SlotCause::Drained]);
}

#[test]
fn a_lease_that_is_recalled_during_its_load_ends_with_the_load() {
    let mut bench = Bench::new();
    bench.prepare(1, lease(1));
    let recalled = bench.broker(BrokerToManager::Recall { lease: LeaseId(1) });
    assert_eq!((refusal(&recalled), causes(&recalled)), (Some(Refusal::Recalled), vec![SlotCause::Recalled]));
    assert!(matches!(bench.status(), SlotStatus::Draining(_)));
    assert_eq!(causes(&bench.loaded(1, LoadOutcome::Loaded)), [SlotCause::Drained]);
}

#[test]
fn a_load_that_does_not_end_makes_the_slot_bad_after_30_s_recalled_or_not() {
    for is_recalled in [false, true] {
        let mut bench = Bench::new();
        bench.prepare(1, lease(1));
        bench.pass(Millis::from_secs(29));
        if is_recalled {
            bench.broker(BrokerToManager::Recall { lease: LeaseId(1) });
        }
        bench.pass(Millis::from_secs(1));
        assert_eq!(bench.status(), SlotStatus::Bad);
    }
}

#[test]
fn the_broker_is_told_once_that_a_lease_is_idle_and_again_when_it_is_not() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    assert_eq!(causes(&bench.pass(timing::IDLE)), [SlotCause::Idle]);
    bench.event(Event::ClientAlive(CLIENT));
    assert_eq!(causes(&bench.pass(timing::IDLE)), []);
    assert_eq!(causes(&bench.step(1, 0)), [SlotCause::Busy]);
}

#[test]
fn the_broker_hears_in_intervals_what_a_lease_has_used_that_never_pauses() {
    let mut bench = Bench::new();
    bench.hold(group(1));
    let (mut told, mut used) = (Vec::new(), Usage::default());
    // A client that always has a step under way: 30 steps of 30 ms.
    bench.step(1, 0);
    for step in 1..=30 {
        bench.step(1, step);
        bench.pass(Millis(30));
        used.add(Usage { bytes: 5, actions: 1, busy: Millis(3) });
        let actions = bench.step_ended(1, step - 1);
        if let Some(report) = report(&actions) {
            assert_eq!((report.why, report.usage), (SlotCause::Used, used));
            assert!(matches!(report.status, SlotStatus::Held(_, Activity::Busy)));
            told.push(step);
        }
    }
    // The first end of a step at 100 ms or later, and so on.
    assert_eq!(told, [4, 8, 12, 16, 20, 24, 28]);
}

#[test]
fn the_broker_hears_of_a_run_that_never_pauses_once_it_is_beyond_its_bytes() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    let mut told = Vec::new();
    bench.step(1, 0);
    for step in 1..=8 {
        bench.step(1, step);
        bench.pass(Millis(60));
        // Five bytes each, of ten.
        told.extend(report(&bench.step_ended(1, step - 1)).map(|report| report.usage.bytes));
    }
    assert_eq!(told, [15, 25, 35]);
}

#[test]
fn a_broker_that_asks_for_no_usage_hears_of_it_with_changes_only() {
    let mut bench = Bench::new();
    bench.broker(BrokerToManager::Prepare { term: Term(1), lease: lease(1), usage_every: None });
    bench.loaded(1, LoadOutcome::Loaded);
    bench.attach(1);
    bench.step(1, 0);
    bench.pass(Millis::from_secs(4));
    assert_eq!(report(&bench.step_ended(1, 0)), None);
    let released = bench.client(CLIENT, ClientToManager::Release { lease: LeaseId(1) });
    assert_eq!(report(&released).unwrap().usage.actions, 1);
}

#[test]
fn without_a_broker_groups_yield_after_a_minute_and_runs_go_on() {
    for (held, yields) in [(lease(1), false), (group(1), true)] {
        let mut bench = Bench::new();
        bench.hold(held);
        bench.event(Event::BrokerClosed(BROKER));
        let mut actions = Vec::new();
        for _ in 0..61 {
            bench.event(Event::ClientAlive(CLIENT));
            actions.extend(bench.pass(Millis::from_secs(1)));
        }
        let asked = actions.contains(&Action::ToClient(CLIENT, ManagerToClient::Yield { lease: LeaseId(1) }));
        assert_eq!(asked, yields);
    }
}

#[test]
fn a_failed_load_is_refused_and_three_in_a_row_refuse_the_bitstream() {
    let mut bench = Bench::new();
    for id in 1..=3 {
        bench.prepare(1, lease(id));
        assert_eq!(refusal(&bench.loaded(id, LoadOutcome::Failed)), Some(Refusal::LoadFailed));
        assert_eq!(bench.status(), SlotStatus::Free);
    }
    assert_eq!(refusal(&bench.prepare(1, lease(4))), Some(Refusal::BadBitstream));
    let other = Lease { digest: Digest::from_bytes([2; 32]), ..lease(5) };
    assert_eq!(refusal(&bench.prepare(1, other)), None);
}

#[test]
fn a_bitstream_without_a_file_is_refused_by_that_cause_and_the_slot_takes_others_however_often_it_happens() {
    let mut bench = Bench::new();
    for id in 1..=9 {
        let digest = Digest::from_bytes([u8::try_from(id).unwrap() / 3; 32]);
        bench.prepare(1, Lease { digest, ..lease(id) });
        assert_eq!(refusal(&bench.loaded(id, LoadOutcome::NoFile)), Some(Refusal::NoFile));
        assert_eq!(bench.status(), SlotStatus::Free);
    }
    bench.prepare(1, lease(10));
    assert_eq!(refusal(&bench.loaded(10, LoadOutcome::Loaded)), None);
}

#[test]
fn steps_and_ends_of_former_leases_change_nothing() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    assert_eq!(bench.step(2, 0), []);
    assert_eq!(
        bench.client(ConnectionId(101), ClientToManager::Step { lease: LeaseId(1), step: StepNumber(0) }),
        []
    );
    assert_eq!(bench.step_ended(2, 0), []);
    assert_eq!(bench.loaded(1, LoadOutcome::Failed), []);
    let killed = Event::Killed { slot: SLOT, lease: LeaseId(2), outcome: Outcome::Done };
    assert_eq!(bench.event(killed), []);
    assert!(matches!(bench.status(), SlotStatus::Held(..)));
}

#[test]
fn a_client_that_sends_steps_without_end_loses_its_slot() {
    let mut bench = Bench::new();
    bench.hold(lease(1));
    let actions: Vec<Action> = (0..2000).flat_map(|step| bench.step(1, step)).collect();
    assert!(actions.contains(&Action::CloseClient(CLIENT)));
    assert!(matches!(bench.status(), SlotStatus::Draining(_)));
}

#[test]
fn reports_are_numbered_from_0_in_each_connection() {
    let mut bench = Bench::new();
    for connection in [ConnectionId(2), ConnectionId(3)] {
        bench.event(Event::BrokerConnected(connection));
        for seq in 0..3 {
            let recall = BrokerToManager::Prepare {
                term: Term(0),
                lease: Lease { slot: SLOT, incarnation: Incarnation(0), ..lease(1) },
                usage_every: EVERY,
            };
            let actions = bench.event(Event::Broker(connection, recall));
            assert_eq!(report(&actions).unwrap().seq, seq);
        }
    }
}

mod bundles;

use super::*;
use crate::ids::{Attempt, Incarnation};
use crate::lease::{Endpoint, Lease, Wanted, Work};
use crate::messages::{Activity, BrokerToManager, Refusal, SlotCause, SlotReport, SlotStatus};
use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use fpga_core::units::Millis;

const A: ManagerId = ManagerId(1);
const OF_A: ConnectionId = ConnectionId(10);
const OF_C: ConnectionId = ConnectionId(20);
const JOB: JobUuid = JobUuid(5);
const SLOT: SlotIndex = SlotIndex(0);
const LIMITS: Limits = Limits { jobs: 2, managers: 1, slots_per_manager: 2 };

struct Bench {
    broker: Broker,
    now: Moment,
    seq: u64,
}

fn endpoint() -> Endpoint {
    Endpoint { address: "a:1".into(), key: None, socket: None }
}

fn lease(id: u128) -> Lease {
    Lease {
        id: LeaseId(id),
        incarnation: Incarnation(7),
        slot: SLOT,
        job: JOB,
        tenant: Tenant::new("a"),
        digest: Digest::from_bytes([1; 32]),
        work: Work::Run { bytes: 10 },
        first_arrival: WallTime(50),
    }
}

fn wanted() -> Wanted {
    Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 10 }, bundle: None }
}

impl Bench {
    /// An active broker with term 4.
    fn active() -> Self {
        let broker = Broker::new(LIMITS, Rules::default());
        let now = Moment { now: MonotonicTime(1_000_000), wall: WallTime(50) };
        let mut bench = Self { broker, now, seq: 0 };
        let swap = bench.event(Event::MayLead { term: Term(3) });
        assert_eq!(swap, [Action::SwapTerm { expected: Term(3), next: Term(4) }]);
        bench.event(Event::Swapped(SwapOutcome::Done));
        assert_eq!(bench.pass(Millis(1999)), []);
        assert_eq!(bench.pass(Millis(1)), [Action::Notice(Notice::Active)]);
        bench
    }

    /// An active broker with a manager whose slot is free, and a job that waits.
    fn ready() -> Self {
        let mut bench = Self::active();
        bench.register(OF_A, 0, SlotStatus::Free);
        bench.want(OF_C, None);
        bench
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        self.broker.handle(event, self.now)
    }

    fn pass(&mut self, time: Millis) -> Vec<Action> {
        self.now.now += time;
        self.broker.tick(self.now.now)
    }

    fn register(&mut self, connection: ConnectionId, max_term: u64, slot: SlotStatus) -> Vec<Action> {
        self.seq = 0;
        let register = ManagerToBroker::Register {
            incarnation: Incarnation(7),
            max_term: Term(max_term),
            endpoint: endpoint(),
            slots: vec![slot],
        };
        self.event(Event::Manager(connection, A, register))
    }

    fn report(&mut self, connection: ConnectionId, status: SlotStatus) -> Vec<Action> {
        let (slot, why, usage) = (SLOT, SlotCause::Unchanged, crate::lease::Usage::default());
        let report = SlotReport { seq: self.seq, slot, status, why, usage };
        self.seq += 1;
        self.event(Event::Manager(connection, A, ManagerToBroker::Slot(report)))
    }

    fn want(&mut self, connection: ConnectionId, ticket: Option<Ticket>) -> Vec<Action> {
        self.attempt(1, connection, ticket)
    }

    fn attempt(&mut self, number: u64, connection: ConnectionId, ticket: Option<Ticket>) -> Vec<Action> {
        let want = ClientToBroker::Want { job: JOB, wanted: wanted(), ticket, attempt: Attempt(number) };
        self.event(Event::Client(connection, Tenant::new("a"), want))
    }

    fn grant(&mut self, id: u128) -> Result<Vec<Action>, GrantError> {
        let digest = Digest::from_bytes([1; 32]);
        let grant = Grant { job: JOB, manager: A, slot: SLOT, digest, lease: LeaseId(id), usage_every: None };
        self.broker.grant(&grant, self.now.now)
    }

    fn prepared(&mut self, id: u128) -> Vec<Action> {
        self.event(Event::Manager(OF_A, A, ManagerToBroker::Prepared { lease: LeaseId(id) }))
    }

    fn slot(&self) -> SlotRecord {
        self.broker.slot(A, SLOT).unwrap().clone()
    }
}

fn not_free() -> Result<Vec<Action>, GrantError> {
    Err(GrantError::NotFree { manager: A, slot: SLOT })
}

#[test]
fn a_granted_lease_is_prepared_first_and_offered_then() {
    let mut bench = Bench::ready();
    let prepare = BrokerToManager::Prepare { term: Term(4), lease: lease(1), usage_every: None };
    assert_eq!(bench.grant(1), Ok(vec![Action::ToManager(OF_A, prepare)]));
    assert_eq!(bench.grant(2), Err(GrantError::NotWaiting(JOB)));
    let offer = BrokerToClient::Offer { job: JOB, lease: LeaseId(1), endpoint: endpoint() };
    assert_eq!(bench.prepared(1), [Action::ToClient(OF_C, offer), Action::Notice(Notice::Left(JOB))]);
    assert_eq!(bench.slot(), SlotRecord::Leased { lease: lease(1), stage: LeaseStage::Reserved });
    assert_eq!(bench.prepared(1), []);
}

#[test]
fn a_slot_is_taken_from_the_prepare_until_its_manager_says_that_it_is_free() {
    let mut bench = Bench::ready();
    bench.grant(1).unwrap();
    bench.report(OF_A, SlotStatus::Free);
    assert_eq!(bench.slot(), SlotRecord::Preparing(lease(1)));
    bench.prepared(1);
    bench.pass(Millis::from_secs(3600));
    bench.want(OF_C, None);
    assert_eq!(bench.grant(2), not_free());
    bench.report(OF_A, SlotStatus::Held(lease(1), Activity::Busy));
    assert_eq!(bench.grant(2), not_free());
    bench.report(OF_A, SlotStatus::Free);
    assert!(bench.grant(2).is_ok());
}

#[test]
fn a_refused_job_waits_again_and_the_slot_is_unknown_until_its_report() {
    let mut bench = Bench::ready();
    bench.grant(1).unwrap();
    let refused = ManagerToBroker::Refused { lease: LeaseId(1), why: Refusal::LoadFailed };
    let actions = bench.event(Event::Manager(OF_A, A, refused));
    assert!(actions.contains(&Action::Notice(Notice::Waiting(JOB))));
    assert_eq!(bench.grant(2), not_free());
    bench.report(OF_A, SlotStatus::Free);
    assert!(bench.grant(2).is_ok());
}

#[test]
fn a_bitstream_that_a_slot_refuses_is_not_asked_for_again_for_a_minute() {
    for why in [Refusal::BadBitstream, Refusal::NoFile] {
        let mut bench = Bench::ready();
        bench.grant(1).unwrap();
        let refused = ManagerToBroker::Refused { lease: LeaseId(1), why };
        bench.event(Event::Manager(OF_A, A, refused));
        bench.report(OF_A, SlotStatus::Free);
        assert_eq!(bench.grant(2), Err(GrantError::BadBitstream { manager: A, slot: SLOT }));
        bench.pass(timing::PROBE);
        assert!(bench.grant(2).is_ok());
    }
}

#[test]
fn a_lease_whose_job_is_cancelled_or_detached_is_recalled_when_it_is_prepared() {
    let cancel = Event::Client(OF_C, Tenant::new("a"), ClientToBroker::Cancel { job: JOB });
    for gone in [cancel, Event::ClientClosed(OF_C)] {
        let mut bench = Bench::ready();
        bench.grant(1).unwrap();
        bench.event(gone);
        let recall = Action::ToManager(OF_A, BrokerToManager::Recall { lease: LeaseId(1) });
        assert_eq!(bench.prepared(1)[0], recall);
    }
}

#[test]
fn a_detached_job_keeps_its_place_for_ten_seconds_and_is_offered_nothing() {
    let mut bench = Bench::ready();
    bench.event(Event::ClientClosed(OF_C));
    assert_eq!(bench.grant(1), Err(GrantError::Detached(JOB)));
    bench.pass(Millis(9_999));
    bench.now.wall = WallTime(99);
    let back = bench.want(ConnectionId(21), None);
    let ticket = Ticket { job: JOB, first_arrival: WallTime(50) };
    assert_eq!(back[0], Action::ToClient(ConnectionId(21), BrokerToClient::Ticket(ticket)));
    bench.event(Event::ClientClosed(ConnectionId(21)));
    assert_eq!(bench.pass(Millis(10_000)), [Action::Notice(Notice::Left(JOB))]);
    assert_eq!(bench.broker.next_deadline(), None);
}

#[test]
fn a_want_that_comes_late_from_a_former_connection_changes_nothing() {
    let mut bench = Bench::active();
    let new = ConnectionId(21);
    bench.attempt(2, new, None);
    assert_eq!(bench.attempt(1, OF_C, None), []);
    bench.event(Event::ClientClosed(OF_C));
    assert_eq!(bench.broker.jobs().next().unwrap().connection, Some(new));
}

#[test]
fn a_ticket_gives_a_job_its_first_arrival_back() {
    let mut bench = Bench::active();
    let ticket = Ticket { job: JOB, first_arrival: WallTime(7) };
    let answer = bench.want(OF_C, Some(ticket));
    assert_eq!(answer[0], Action::ToClient(OF_C, BrokerToClient::Ticket(ticket)));
    let foreign = Ticket { job: JobUuid(6), first_arrival: WallTime(1) };
    bench.want(OF_C, Some(foreign));
    assert_eq!(bench.broker.job(JOB).unwrap().first_arrival, WallTime(7));
}

#[test]
fn a_lost_manager_is_forgotten_and_its_unanswered_job_waits_again() {
    let mut bench = Bench::ready();
    bench.grant(1).unwrap();
    let lost = [Action::Notice(Notice::Lost(A)), Action::Notice(Notice::Waiting(JOB))];
    assert_eq!(bench.event(Event::ManagerClosed(OF_A)), lost);
    assert_eq!(bench.grant(2), not_free());
    bench.register(ConnectionId(11), 4, SlotStatus::Reserved(lease(1)));
    assert_eq!(bench.grant(2), not_free());
}

#[test]
fn a_manager_that_does_not_answer_a_prepare_loses_its_connection_and_the_job_waits_again() {
    let mut bench = Bench::ready();
    bench.grant(1).unwrap();
    assert_eq!(bench.pass(Millis(34_999)), []);
    let lost = [Action::Notice(Notice::Lost(A)), Action::Notice(Notice::Waiting(JOB)), Action::Close(OF_A)];
    assert_eq!(bench.pass(Millis(1)), lost);
    assert_eq!(bench.broker.next_deadline(), None);
}

#[test]
fn a_manager_that_registers_twice_on_a_connection_loses_it() {
    let mut bench = Bench::ready();
    let again = bench.register(OF_A, 0, SlotStatus::Free);
    assert_eq!(again, [Action::Notice(Notice::Lost(A)), Action::Close(OF_A)]);
    assert_eq!(bench.grant(1), not_free());
}

#[test]
fn only_the_present_connection_of_a_manager_counts_and_its_reports_in_order() {
    let mut bench = Bench::ready();
    let held = SlotStatus::Held(lease(1), Activity::Busy);
    let again = bench.register(ConnectionId(11), 4, held);
    assert!(again.contains(&Action::Close(OF_A)));
    assert_eq!(bench.report(OF_A, SlotStatus::Free), []);
    assert_eq!(bench.grant(2), not_free());
    bench.seq = 5;
    let actions = bench.report(ConnectionId(11), SlotStatus::Free);
    assert!(actions.contains(&Action::Close(ConnectionId(11))));
}

#[test]
fn a_manager_that_has_heard_a_later_term_makes_the_broker_take_a_later_one_or_step_down() {
    for (outcome, role) in
        [(SwapOutcome::Done, Role::Active { term: Term(10) }), (SwapOutcome::Failed, Role::Standby)]
    {
        let mut bench = Bench::ready();
        let heard = bench.register(ConnectionId(11), 9, SlotStatus::Free);
        assert!(heard.contains(&Action::SwapTerm { expected: Term(4), next: Term(10) }));
        let actions = bench.event(Event::Swapped(outcome));
        assert_eq!(bench.broker.role(), role);
        assert_eq!(actions.contains(&Action::Close(OF_C)), role == Role::Standby);
    }
}

#[test]
fn a_broker_grants_while_it_takes_a_later_term() {
    let mut bench = Bench::ready();
    bench.register(ConnectionId(11), 9, SlotStatus::Free);
    assert!(bench.grant(1).is_ok());
    let refused =
        ManagerToBroker::Refused { lease: LeaseId(1), why: Refusal::OldTerm { max_term: Term(12) } };
    bench.event(Event::Manager(ConnectionId(11), A, refused));
    let again = bench.event(Event::Swapped(SwapOutcome::Done));
    assert_eq!(again, [Action::SwapTerm { expected: Term(10), next: Term(13) }]);
    assert_eq!(bench.event(Event::Swapped(SwapOutcome::Done)), []);
    assert_eq!(bench.broker.role(), Role::Active { term: Term(13) });
}

#[test]
fn a_broker_that_stands_by_or_has_lost_its_lease_turns_everybody_away() {
    let mut bench = Bench::ready();
    let actions = bench.event(Event::LeaseLost);
    assert!(actions.contains(&Action::Close(OF_A)) && actions.contains(&Action::Close(OF_C)));
    assert_eq!(bench.want(OF_C, None), [Action::Close(OF_C)]);
    assert_eq!(bench.broker.jobs().count(), 0);
}

#[test]
fn a_newly_active_broker_listens_for_two_seconds_and_grants_nothing() {
    let mut bench = Bench { broker: Broker::new(LIMITS, Rules::default()), now: Moment::default(), seq: 0 };
    bench.event(Event::MayLead { term: Term(0) });
    bench.event(Event::Swapped(SwapOutcome::Done));
    bench.register(OF_A, 0, SlotStatus::Free);
    bench.want(OF_C, None);
    assert_eq!(bench.grant(1), Err(GrantError::NotActive));
    bench.pass(timing::SETTLE);
    assert!(bench.grant(1).is_ok());
}

#[test]
fn limits_and_tenants_are_kept_apart() {
    let mut bench = Bench::ready();
    let want = |id, tenant| {
        let want =
            ClientToBroker::Want { job: JobUuid(id), wanted: wanted(), ticket: None, attempt: Attempt(1) };
        Event::Client(OF_C, Tenant::new(tenant), want)
    };
    let cancelled = |id, why| Action::ToClient(OF_C, BrokerToClient::Cancel { job: JobUuid(id), why });
    assert_eq!(bench.event(want(5, "b")), [cancelled(5, CancelCause::Foreign)]);
    bench.event(want(6, "a"));
    assert_eq!(bench.event(want(7, "a")), [cancelled(7, CancelCause::Full)]);
    let steal = ClientToBroker::Cancel { job: JOB };
    assert_eq!(bench.event(Event::Client(OF_C, Tenant::new("b"), steal)), []);
}

#[test]
fn a_slot_is_recalled_while_a_client_may_hold_it() {
    let mut bench = Bench::ready();
    assert_eq!(bench.broker.recall(A, SLOT), None);
    bench.report(OF_A, SlotStatus::Held(lease(1), Activity::Idle));
    let recall = Action::ToManager(OF_A, BrokerToManager::Recall { lease: LeaseId(1) });
    assert_eq!(bench.broker.recall(A, SLOT), Some(recall));
    bench.report(OF_A, SlotStatus::Draining(lease(1)));
    assert_eq!(bench.broker.recall(A, SLOT), None);
}

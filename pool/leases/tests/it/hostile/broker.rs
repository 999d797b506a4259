//! A broker with an honest manager, its clients, and hostile ones.

use super::assert_small;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_pool_leases::broker::{Action, Broker, Event, Grant, Limits, Role, SwapOutcome};
use fpga_pool_leases::ids::{Attempt, ConnectionId, Incarnation, JobUuid, LeaseId, ManagerId, Term};
use fpga_pool_leases::lease::{Endpoint, Lease, Ticket, Usage, Wanted, Work};
use fpga_pool_leases::messages::{
    Activity, ClientToBroker, ManagerToBroker, Refusal, SlotCause, SlotReport, SlotStatus,
};
use fpga_pool_leases::rules::Rules;
use fpga_pool_leases::timing;
use proptest::prelude::*;
use std::collections::BTreeMap;

const HONEST: ManagerId = ManagerId(0);
const HONEST_MANAGER: ConnectionId = ConnectionId(0);
const HONEST_CLIENT: ConnectionId = ConnectionId(1);
const HONEST_JOB: JobUuid = JobUuid(0);
const LIMITS: Limits = Limits { jobs: 4, managers: 3, slots_per_manager: 2 };
/// The first lease id that the policy gives out. Hostile peers name lower and higher ones.
const FIRST_LEASE: u128 = 10;

/// What hostile peers, time, and the policy do.
#[derive(Debug, Clone)]
enum Move {
    /// A message of a hostile manager on one of its connections.
    Manager(Hostile, ManagerToBroker),
    /// The same, with the number that a report must have.
    Report(Hostile, SlotReport),
    ManagerLeaves(Hostile),
    Client(u64, ClientToBroker),
    ClientLeaves(u64),
    /// The policy gives a hostile client's job a hostile manager's slot.
    Grants(JobUuid, ManagerId, SlotIndex),
    Recalls(ManagerId, SlotIndex),
    SwapAnswered,
    Pass(Millis),
}

/// A connection of a hostile manager.
#[derive(Debug, Clone, Copy)]
struct Hostile {
    id: ManagerId,
    number: u64,
}

impl Hostile {
    fn connection(self) -> ConnectionId {
        ConnectionId(100 * self.id.0 + self.number)
    }
}

fn client(number: u64) -> ConnectionId {
    ConnectionId(10 + number)
}

struct Bench {
    broker: Broker,
    now: Moment,
    leases: u128,
    /// The number of the next report on each connection of each hostile manager.
    seqs: BTreeMap<ConnectionId, u64>,
}

fn lease(id: u128, job: u128) -> Lease {
    Lease {
        id: LeaseId(id),
        incarnation: Incarnation(1),
        slot: SlotIndex(1),
        job: JobUuid(job),
        tenant: Tenant::new("honest"),
        digest: Digest::from_bytes([1; 32]),
        work: Work::Run { bytes: 10 },
        first_arrival: WallTime(50),
    }
}

fn wanted() -> Wanted {
    Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 10 }, bundle: None }
}

fn register(max_term: u64, slots: Vec<SlotStatus>) -> ManagerToBroker {
    let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
    ManagerToBroker::Register { incarnation: Incarnation(1), max_term: Term(max_term), endpoint, slots }
}

fn want(job: JobUuid, attempt: u64, ticket: Option<Ticket>) -> ClientToBroker {
    ClientToBroker::Want { job, wanted: wanted(), ticket, attempt: Attempt(attempt) }
}

impl Bench {
    /// A broker in office in this term, with an honest manager, of whose slots one is free and one is held, and a job
    /// that waits.
    fn new(term: Term) -> Self {
        let now = Moment { now: MonotonicTime(1_000_000), wall: WallTime(50) };
        let mut broker = Broker::new(LIMITS, Rules::ALL);
        broker.handle(Event::MayLead { term: Term(term.0 - 1) }, now);
        broker.handle(Event::Swapped(SwapOutcome::Done), now);
        broker.tick(now.now + timing::SETTLE);
        assert_eq!(broker.role(), Role::Active { term });
        let slots = vec![SlotStatus::Free, SlotStatus::Held(lease(0, 99), Activity::Busy)];
        broker.handle(Event::Manager(HONEST_MANAGER, HONEST, register(0, slots)), now);
        let want = want(HONEST_JOB, 1, None);
        broker.handle(Event::Client(HONEST_CLIENT, Tenant::new("honest"), want), now);
        Self { broker, now, leases: FIRST_LEASE, seqs: BTreeMap::new() }
    }

    /// What the honest peers have.
    fn honest(&self) -> String {
        let job = self.broker.jobs().find(|job| job.id == HONEST_JOB);
        let slots = self.broker.slots().filter(|(manager, ..)| *manager == HONEST);
        format!("{job:?} {:?}", slots.collect::<Vec<_>>())
    }

    fn play(&mut self, what: Move) -> Vec<Action> {
        let (before, now) = (self.honest(), self.now);
        let actions = match what {
            Move::Manager(hostile, message) => {
                if matches!(message, ManagerToBroker::Register { .. }) {
                    self.seqs.insert(hostile.connection(), 0);
                }
                self.broker.handle(Event::Manager(hostile.connection(), hostile.id, message), now)
            }
            Move::Report(hostile, report) => {
                let next = self.seqs.entry(hostile.connection()).or_default();
                let report = SlotReport { seq: *next, ..report };
                *next += 1;
                let message = ManagerToBroker::Slot(report);
                self.broker.handle(Event::Manager(hostile.connection(), hostile.id, message), now)
            }
            Move::ManagerLeaves(hostile) => {
                self.broker.handle(Event::ManagerClosed(hostile.connection()), now)
            }
            Move::Client(number, message) => {
                self.broker.handle(Event::Client(client(number), Tenant::new("hostile"), message), now)
            }
            Move::ClientLeaves(number) => self.broker.handle(Event::ClientClosed(client(number)), now),
            Move::Grants(job, manager, slot) => {
                self.leases += 1;
                let digest = Digest::from_bytes([1; 32]);
                let grant =
                    Grant { job, manager, slot, digest, lease: LeaseId(self.leases), usage_every: None };
                self.broker.grant(&grant, now.now).unwrap_or_default()
            }
            Move::Recalls(manager, slot) => self.broker.recall(manager, slot).into_iter().collect(),
            Move::SwapAnswered => self.broker.handle(Event::Swapped(SwapOutcome::Done), now),
            Move::Pass(time) => {
                self.now.now += time;
                self.broker.tick(self.now.now)
            }
        };
        assert_eq!(self.honest(), before);
        self.check(&actions);
        actions
    }

    fn check(&self, actions: &[Action]) {
        for action in actions {
            let (Action::ToManager(to, _) | Action::ToClient(to, _) | Action::Close(to)) = action else {
                continue;
            };
            assert!(*to != HONEST_MANAGER && *to != HONEST_CLIENT, "{action:?}");
        }
        let digest = Digest::from_bytes([1; 32]);
        let (slot, lease) = (SlotIndex(0), LeaseId(u128::MAX));
        let grant = Grant { job: HONEST_JOB, manager: HONEST, slot, digest, lease, usage_every: None };
        assert_eq!(self.broker.can_grant(&grant, self.now.now), Ok(()));
        assert!(self.broker.jobs().count() <= LIMITS.jobs);
        assert!(self.broker.slots().count() <= LIMITS.managers * LIMITS.slots_per_manager);
        if let Some(next) = self.broker.next_deadline() {
            assert!(next > self.now.now && next <= self.now.now + timing::ANSWER);
        }
        assert_small(&self.broker);
    }

    /// All hostile peers leave, and what they left behind is dropped.
    fn leave(&mut self) {
        for hostile in all_hostile() {
            self.play(Move::ManagerLeaves(hostile));
        }
        for number in 0..3 {
            self.play(Move::ClientLeaves(number));
        }
        self.play(Move::Pass(timing::LOST));
        while !self.play(Move::SwapAnswered).is_empty() {}
    }
}

fn all_hostile() -> impl Iterator<Item = Hostile> {
    (1..4).flat_map(|id| (0..2).map(move |number| Hostile { id: ManagerId(id), number }))
}

fn hostile() -> impl Strategy<Value = Hostile> {
    prop::sample::select(all_hostile().collect::<Vec<_>>())
}

fn job() -> impl Strategy<Value = JobUuid> {
    (0..7_u128).prop_map(JobUuid)
}

fn any_lease() -> impl Strategy<Value = LeaseId> {
    (0..FIRST_LEASE + 20).prop_map(LeaseId)
}

fn status() -> impl Strategy<Value = SlotStatus> {
    let of = (any_lease(), job()).prop_map(|(id, job)| lease(id.0, job.0));
    prop_oneof![
        3 => Just(SlotStatus::Free),
        1 => Just(SlotStatus::Bad),
        1 => of.prop_flat_map(|lease| prop::sample::select(vec![
            SlotStatus::Reserved(lease.clone()),
            SlotStatus::Held(lease.clone(), Activity::Idle),
            SlotStatus::Draining(lease),
        ])),
    ]
}

fn report() -> impl Strategy<Value = SlotReport> {
    let sizes = prop_oneof![Just(0), Just(u64::MAX)];
    (0..4_u64, 0..4_u32, status(), sizes).prop_map(|(seq, slot, status, bytes)| {
        let usage = Usage { bytes, actions: bytes, busy: Millis(bytes) };
        SlotReport { seq, slot: SlotIndex(slot), status, why: SlotCause::Drained, usage }
    })
}

fn term() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..20_u64, 1 => Just(u64::MAX)]
}

fn from_manager() -> impl Strategy<Value = ManagerToBroker> {
    let why = prop_oneof![
        Just(Refusal::BadBitstream),
        Just(Refusal::NoFile),
        Just(Refusal::NotFree),
        term().prop_map(|term| Refusal::OldTerm { max_term: Term(term) }),
    ];
    prop_oneof![
        3 => (term(), prop::collection::vec(status(), 0..4)).prop_map(|(term, slots)| register(term, slots)),
        1 => report().prop_map(ManagerToBroker::Slot),
        3 => any_lease().prop_map(|lease| ManagerToBroker::Prepared { lease }),
        2 => (any_lease(), why).prop_map(|(lease, why)| ManagerToBroker::Refused { lease, why }),
    ]
}

fn from_client() -> impl Strategy<Value = ClientToBroker> {
    let ticket = prop::option::of((job(), 0..3_u64).prop_map(|(job, at)| {
        let first_arrival = WallTime(if at == 2 { u64::MAX } else { at });
        Ticket { job, first_arrival }
    }));
    let attempt = prop_oneof![0..3_u64, Just(u64::MAX)];
    prop_oneof![
        4 => (job(), attempt, ticket).prop_map(|(job, attempt, ticket)| want(job, attempt, ticket)),
        1 => job().prop_map(|job| ClientToBroker::Cancel { job }),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    let slot = || (1..4_u64, 0..3_u32).prop_map(|(manager, slot)| (ManagerId(manager), SlotIndex(slot)));
    prop_oneof![
        6 => (hostile(), from_manager()).prop_map(|(hostile, message)| Move::Manager(hostile, message)),
        3 => (hostile(), report()).prop_map(|(hostile, report)| Move::Report(hostile, report)),
        1 => hostile().prop_map(Move::ManagerLeaves),
        5 => (0..3_u64, from_client()).prop_map(|(number, message)| Move::Client(number, message)),
        1 => (0..3_u64).prop_map(Move::ClientLeaves),
        5 => (1..7_u128, slot())
            .prop_map(|(job, (manager, slot))| Move::Grants(JobUuid(job), manager, slot)),
        1 => slot().prop_map(|(manager, slot)| Move::Recalls(manager, slot)),
        2 => Just(Move::SwapAnswered),
        1 => (0..20_000_u64).prop_map(|time| Move::Pass(Millis(time))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_messages_make_a_broker_panic_or_grow_or_keep_the_honest_from_their_slots(
        moves in prop::collection::vec(any_move(), 1..300),
    ) {
        let mut bench = Bench::new(Term(5));
        for what in moves {
            bench.play(what);
        }
        bench.leave();
        let Role::Active { term } = bench.broker.role() else { panic!("{:?}", bench.broker.role()) };
        assert_eq!(bench.broker, Bench::new(term).broker);
    }
}

const LIAR: Hostile = Hostile { id: ManagerId(1), number: 0 };

fn free() -> Move {
    Move::Manager(LIAR, register(0, vec![SlotStatus::Free]))
}

fn reports(slot: u32) -> Move {
    let usage = Usage { bytes: u64::MAX, ..Usage::default() };
    let (slot, status, why) = (SlotIndex(slot), SlotStatus::Free, SlotCause::Drained);
    Move::Report(LIAR, SlotReport { seq: 0, slot, status, why, usage })
}

#[test]
fn a_manager_that_breaks_the_protocol_loses_its_connection_alone() {
    let repeated = SlotReport {
        seq: 0,
        slot: SlotIndex(0),
        status: SlotStatus::Free,
        why: SlotCause::Drained,
        usage: Usage::default(),
    };
    let granted = || Move::Grants(JobUuid(1), LIAR.id, SlotIndex(0));
    let waits = || Move::Client(0, want(JobUuid(1), 1, None));
    for (what, moves) in [
        ("more slots than may be", vec![Move::Manager(LIAR, register(0, vec![SlotStatus::Free; 3]))]),
        ("a report of a slot that it has not told of", vec![free(), reports(1)]),
        ("a repeated report", vec![free(), reports(0), Move::Manager(LIAR, ManagerToBroker::Slot(repeated))]),
        ("two Registers on one connection", vec![free(), free()]),
        ("no answer to a Prepare", vec![free(), waits(), granted(), Move::Pass(timing::ANSWER)]),
    ] {
        let mut bench = Bench::new(Term(5));
        let last = moves.into_iter().map(|what| bench.play(what)).last().unwrap();
        assert!(last.contains(&Action::Close(LIAR.connection())), "{what}: {last:?}");
        assert!(!bench.broker.slots().any(|(manager, ..)| manager == LIAR.id), "{what}");
    }
}

#[test]
fn what_a_manager_says_of_anothers_leases_changes_nothing() {
    let mut bench = Bench::new(Term(5));
    bench.play(free());
    let (slot, lease, digest) = (SlotIndex(0), LeaseId(50), Digest::from_bytes([1; 32]));
    let grant = Grant { job: HONEST_JOB, manager: HONEST, slot, digest, lease, usage_every: None };
    bench.broker.grant(&grant, bench.now.now).unwrap();
    let before = bench.broker.clone();
    for message in [
        ManagerToBroker::Prepared { lease },
        ManagerToBroker::Refused { lease, why: Refusal::BadBitstream },
        ManagerToBroker::Refused { lease, why: Refusal::OldTerm { max_term: Term(u64::MAX) } },
    ] {
        let event = Event::Manager(LIAR.connection(), LIAR.id, message.clone());
        assert_eq!(bench.broker.handle(event, bench.now), [], "{message:?}");
        assert_eq!(bench.broker, before, "{message:?}");
    }
}

#[test]
fn a_manager_that_claims_the_last_of_all_terms_keeps_nobody_from_being_granted() {
    let mut bench = Bench::new(Term(5));
    for round in 1..=20 {
        let claims = Move::Manager(
            Hostile { number: round % 2, ..LIAR },
            register(u64::MAX, vec![SlotStatus::Held(lease(0, 0), Activity::Busy)]),
        );
        let actions = bench.play(claims);
        assert!(actions.iter().any(|action| matches!(action, Action::SwapTerm { .. })));
        assert_eq!(bench.play(Move::SwapAnswered), []);
    }
    let Role::Active { term } = bench.broker.role() else { panic!("{:?}", bench.broker.role()) };
    assert!(term < Term(u64::MAX / 1_000_000));
}

#[test]
fn a_client_can_neither_take_nor_cancel_nor_displace_another_tenants_job() {
    let mut bench = Bench::new(Term(5));
    bench.play(Move::Client(0, want(HONEST_JOB, u64::MAX, None)));
    bench.play(Move::Client(0, ClientToBroker::Cancel { job: HONEST_JOB }));
    for number in 1..100 {
        bench.play(Move::Client(0, want(JobUuid(number), 1, None)));
    }
    assert_eq!(bench.broker.jobs().count(), LIMITS.jobs);
}

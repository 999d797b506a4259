//! A manager with an honest broker, board, and client, and hostile clients.

use super::assert_small;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, MonotonicTime, WallTime};
use fpga_pool_leases::ids::{ConnectionId, GroupUuid, Incarnation, JobUuid, LeaseId, StepNumber, Term};
use fpga_pool_leases::lease::{Endpoint, Goal, Group, Lease, Usage, Work};
use fpga_pool_leases::manager::{Action, Config, Event, LoadOutcome, Manager, Outcome};
use fpga_pool_leases::messages::{BrokerToManager, ClientToManager, SlotStatus};
use fpga_pool_leases::rules::Rules;
use fpga_pool_leases::timing;
use proptest::prelude::*;

const HONEST_SLOT: SlotIndex = SlotIndex(0);
const HONEST_CLIENT: ConnectionId = ConnectionId(1);
const HONEST_LEASE: LeaseId = LeaseId(0);
const SLOTS: u32 = 3;
const STEP: Millis = Millis::from_secs(1);

#[derive(Debug, Clone)]
enum Move {
    /// The broker asks for a lease of a hostile client's job.
    Prepare(Term, Lease),
    Recall(LeaseId),
    Client(ConnectionId, ClientToManager),
    /// A flood of steps.
    Steps(ConnectionId, LeaseId, u64),
    Alive(ConnectionId),
    Closed(ConnectionId),
    /// One of the tasks of the board ends.
    BoardEnds(prop::sample::Index, Outcome),
    BrokerReconnects(ConnectionId),
    BrokerLeaves(ConnectionId),
    Pass(Millis),
}

/// Something that the board does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Load(SlotIndex, LeaseId),
    Step(SlotIndex, LeaseId, StepNumber),
    Kill(SlotIndex, LeaseId),
    Probe(SlotIndex),
}

struct Bench {
    manager: Manager,
    now: MonotonicTime,
    tasks: Vec<Task>,
}

fn lease(id: u128, slot: u32, work: Work) -> Lease {
    Lease {
        id: LeaseId(id),
        incarnation: Incarnation(1),
        slot: SlotIndex(slot),
        job: JobUuid(id),
        tenant: Tenant::new("hostile"),
        digest: Digest::from_bytes([1; 32]),
        work,
        first_arrival: WallTime(1),
    }
}

fn run(id: u128, slot: u32) -> Lease {
    lease(id, slot, Work::Run { bytes: 10 })
}

impl Bench {
    /// A manager whose first slot an honest client holds.
    fn new() -> Self {
        let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
        let config = Config { incarnation: Incarnation(1), endpoint, slots: SLOTS, longest_step: STEP };
        let (mut manager, _) = Manager::new(config, Rules::ALL);
        let now = MonotonicTime(1_000_000);
        let (slot, lease) = (HONEST_SLOT, HONEST_LEASE);
        for event in [
            Event::ChildrenReaped,
            Event::BrokerConnected(ConnectionId(0)),
            Event::Broker(
                ConnectionId(0),
                BrokerToManager::Prepare { term: Term(1), lease: run(0, 0), usage_every: None },
            ),
            Event::Loaded { slot, lease, outcome: LoadOutcome::Loaded },
            Event::Client(HONEST_CLIENT, ClientToManager::Attach { lease }),
        ] {
            manager.handle(event, now);
        }
        let bench = Self { manager, now, tasks: Vec::new() };
        bench.assert_honest_is_held();
        bench
    }

    fn assert_honest_is_held(&self) {
        let status = self.manager.slot(HONEST_SLOT);
        assert!(
            matches!(&status, Some(SlotStatus::Held(lease, _)) if lease.id == HONEST_LEASE),
            "{status:?}"
        );
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        let actions = self.manager.handle(event, self.now);
        self.carry_out(&actions);
        actions
    }

    fn broker(&mut self, message: BrokerToManager) {
        if let Some(connection) = self.manager.broker_connection() {
            self.event(Event::Broker(connection, message));
        }
    }

    fn play(&mut self, what: Move) {
        match what {
            Move::Prepare(term, lease) => {
                self.broker(BrokerToManager::Prepare { term, lease, usage_every: Some(Millis(0)) });
            }
            Move::Recall(lease) => self.broker(BrokerToManager::Recall { lease }),
            Move::Client(connection, message) => {
                self.event(Event::Client(connection, message));
            }
            Move::Steps(connection, lease, count) => {
                for step in (0..count).map(StepNumber) {
                    self.event(Event::Client(connection, ClientToManager::Step { lease, step }));
                }
            }
            Move::Alive(connection) => {
                self.event(Event::ClientAlive(connection));
            }
            Move::Closed(connection) => {
                self.event(Event::ClientClosed(connection));
            }
            Move::BoardEnds(index, outcome) => {
                if !self.tasks.is_empty() {
                    let task = self.tasks.remove(index.index(self.tasks.len()));
                    self.end(task, outcome);
                }
            }
            Move::BrokerReconnects(connection) => {
                self.event(Event::BrokerConnected(connection));
            }
            Move::BrokerLeaves(connection) => {
                self.event(Event::BrokerClosed(connection));
            }
            Move::Pass(time) => self.pass(time),
        }
    }

    fn end_first(&mut self, outcome: Outcome) {
        let task = self.tasks.remove(0);
        self.end(task, outcome);
    }

    fn end(&mut self, task: Task, outcome: Outcome) {
        let usage = Usage { bytes: u64::MAX, actions: u64::MAX, busy: Millis(u64::MAX) };
        let event = match task {
            Task::Load(slot, lease) => {
                let outcome = match outcome {
                    Outcome::Done => LoadOutcome::Loaded,
                    Outcome::Failed => LoadOutcome::Failed,
                };
                Event::Loaded { slot, lease, outcome }
            }
            Task::Step(slot, lease, step) => Event::StepEnded { slot, lease, step, usage },
            Task::Kill(slot, lease) => {
                if outcome == Outcome::Done {
                    self.tasks.retain(|task| !matches!(task, Task::Step(_, of, _) if *of == lease));
                }
                Event::Killed { slot, lease, outcome }
            }
            Task::Probe(slot) => {
                // A probe fails as long as a load, or a process of a former tenant, lives.
                let is_clear = self.tasks.iter().all(|task| task.slot() != slot);
                Event::Probed { slot, outcome: if is_clear { outcome } else { Outcome::Failed } }
            }
        };
        self.event(event);
    }

    /// Lets time pass, in which the honest client answers its pings.
    fn pass(&mut self, time: Millis) {
        let until = self.now + time;
        while self.now < until {
            let next = self.manager.next_deadline().unwrap_or(until).min(until);
            self.now = next.min(self.now + timing::IDLE);
            self.event(Event::ClientAlive(HONEST_CLIENT));
            let actions = self.manager.tick(self.now);
            self.carry_out(&actions);
        }
    }

    fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            let task = match *action {
                Action::ToClient(to, _) | Action::CloseClient(to) => {
                    assert_ne!(to, HONEST_CLIENT, "{action:?}");
                    continue;
                }
                Action::ToBroker(_) | Action::ReapChildren => continue,
                Action::Load { slot, lease, .. } => Task::Load(slot, lease),
                Action::Start { slot, lease, step } => Task::Step(slot, lease, step),
                Action::Kill { slot, lease } => Task::Kill(slot, lease),
                Action::Probe(slot) => Task::Probe(slot),
            };
            assert_ne!(task.slot(), HONEST_SLOT);
            self.tasks.push(task);
        }
        self.check();
    }

    /// I1 and I2, and that the manager is small and has a timer within a minute, if any.
    fn check(&self) {
        self.assert_honest_is_held();
        for slot in (1..SLOTS).map(SlotIndex) {
            let status = self.manager.slot(slot).unwrap();
            let runs = self.tasks.iter().filter_map(|task| task.lease_in(slot));
            match status {
                SlotStatus::Free => assert_eq!(runs.count(), 0, "{slot:?} is free"),
                SlotStatus::Bad => {}
                SlotStatus::Reserved(lease) | SlotStatus::Held(lease, _) | SlotStatus::Draining(lease) => {
                    assert!(runs.into_iter().all(|id| id == lease.id));
                }
            }
        }
        if let Some(next) = self.manager.next_deadline() {
            assert!(next <= self.now + timing::PROBE);
        }
        assert_small(&self.manager);
    }

    /// Whether a lease still has a hostile slot.
    fn is_taken(&self) -> bool {
        let status = |slot| self.manager.slot(SlotIndex(slot)).unwrap();
        (1..SLOTS).any(|slot| !matches!(status(slot), SlotStatus::Free | SlotStatus::Bad))
    }
}

impl Task {
    fn slot(self) -> SlotIndex {
        match self {
            Self::Load(slot, _) | Self::Step(slot, ..) | Self::Kill(slot, _) | Self::Probe(slot) => slot,
        }
    }

    /// The lease for which a slot loads or computes.
    fn lease_in(&self, of: SlotIndex) -> Option<LeaseId> {
        match *self {
            Self::Load(slot, lease) | Self::Step(slot, lease, _) if slot == of => Some(lease),
            _ => None,
        }
    }
}

fn id() -> impl Strategy<Value = u128> {
    1..8_u128
}

fn hostile() -> impl Strategy<Value = ConnectionId> {
    (10..14_u64).prop_map(ConnectionId)
}

fn prepare() -> impl Strategy<Value = Move> {
    let goal = Goal::Throughput { actions_per_hour: u64::MAX };
    let group = Group { id: GroupUuid(1), goal, least: 0, most: u32::MAX };
    let work = prop::sample::select(vec![Work::Run { bytes: u64::MAX }, Work::Group(group)]);
    let life = prop_oneof![9 => Just(1), 1 => Just(2)];
    (0..4_u64, id(), 0..SLOTS + 1, work, life).prop_map(|(term, id, slot, work, life)| {
        // An id is of one slot: brokers draw ids anew.
        let slot = if slot == SLOTS { slot } else { 1 + u32::from(id % 2 == 0) };
        let lease = Lease { incarnation: Incarnation(life), ..lease(id, slot, work) };
        Move::Prepare(Term(term), lease)
    })
}

fn from_client() -> impl Strategy<Value = ClientToManager> {
    let lease = || id().prop_map(LeaseId);
    let step = prop_oneof![0..3_u64, Just(u64::MAX)].prop_map(StepNumber);
    prop_oneof![
        3 => lease().prop_map(|lease| ClientToManager::Attach { lease }),
        6 => (lease(), step).prop_map(|(lease, step)| ClientToManager::Step { lease, step }),
        1 => lease().prop_map(|lease| ClientToManager::Release { lease }),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    let outcome = prop_oneof![4 => Just(Outcome::Done), 1 => Just(Outcome::Failed)];
    prop_oneof![
        6 => prepare(),
        1 => id().prop_map(|id| Move::Recall(LeaseId(id))),
        12 => (hostile(), from_client()).prop_map(|(connection, message)| Move::Client(connection, message)),
        1 => (hostile(), id()).prop_map(|(connection, id)| Move::Steps(connection, LeaseId(id), 50)),
        2 => hostile().prop_map(Move::Alive),
        1 => hostile().prop_map(Move::Closed),
        8 => (any::<prop::sample::Index>(), outcome)
            .prop_map(|(index, outcome)| Move::BoardEnds(index, outcome)),
        1 => (0..3_u64).prop_map(|id| Move::BrokerReconnects(ConnectionId(id))),
        1 => (0..3_u64).prop_map(|id| Move::BrokerLeaves(ConnectionId(id))),
        2 => (0..6_000_u64).prop_map(|time| Move::Pass(Millis(time))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_clients_make_a_manager_panic_or_grow_or_touch_anothers_slot_or_keep_a_recalled_one(
        moves in prop::collection::vec(any_move(), 1..200),
    ) {
        let mut bench = Bench::new();
        for what in moves {
            bench.play(what);
        }
        bench.event(Event::BrokerConnected(ConnectionId(9)));
        for id in 1..8 {
            bench.play(Move::Recall(LeaseId(id)));
        }
        // The clients never release and answer every ping; no task of theirs ends.
        for _ in 0..33 {
            bench.pass(timing::IDLE);
            for connection in (10..14).map(ConnectionId) {
                bench.play(Move::Alive(connection));
            }
        }
        assert!(!bench.is_taken(), "{:?}", bench.manager);
    }
}

#[test]
fn what_a_client_does_with_a_lease_that_it_does_not_hold_changes_nothing() {
    let (of_honest, unknown) = (HONEST_LEASE, LeaseId(77));
    let step = StepNumber(0);
    let mine = LeaseId(1);
    for (message, is_refused) in [
        (ClientToManager::Attach { lease: unknown }, true),
        (ClientToManager::Attach { lease: of_honest }, true),
        (ClientToManager::Attach { lease: mine }, true),
        (ClientToManager::Step { lease: unknown, step }, false),
        (ClientToManager::Step { lease: of_honest, step }, false),
        (ClientToManager::Step { lease: mine, step }, false),
        (ClientToManager::Release { lease: unknown }, false),
    ] {
        let mut bench = Bench::new();
        bench.play(Move::Prepare(Term(1), run(1, 1)));
        bench.end_first(Outcome::Done);
        bench.play(Move::Client(ConnectionId(10), ClientToManager::Attach { lease: mine }));
        let before = bench.manager.clone();
        let stranger = ConnectionId(11);
        let actions = bench.event(Event::Client(stranger, message.clone()));
        assert_eq!(actions.contains(&Action::CloseClient(stranger)), is_refused, "{message:?}");
        assert_eq!(bench.manager, before, "{message:?}");
    }
}

#[test]
fn a_client_that_sends_more_steps_than_may_be_under_way_loses_its_slot() {
    let mut bench = Bench::new();
    bench.play(Move::Prepare(Term(1), run(1, 1)));
    bench.end_first(Outcome::Done);
    let client = ConnectionId(10);
    bench.play(Move::Client(client, ClientToManager::Attach { lease: LeaseId(1) }));
    bench.play(Move::Steps(client, LeaseId(1), 5_000));
    assert!(bench.tasks.len() <= 1_024);
    assert!(matches!(bench.manager.slot(SlotIndex(1)), Some(SlotStatus::Draining(_))));
}

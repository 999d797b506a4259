//! A job among honest brokers and hostile managers.

use super::assert_small;
use fpga_core::units::{Millis, MonotonicTime};
use fpga_pool_leases::client::{Action, End, Event, Job, Phase, Repetition};
use fpga_pool_leases::ids::{ConnectionId, JobUuid, LeaseId, StepNumber};
use fpga_pool_leases::lease::{Endpoint, Wanted, Work};
use fpga_pool_leases::messages::{BrokerToClient, ClientToManager, ManagerToClient};
use fpga_pool_leases::rules::Rules;
use fpga_pool_leases::timing;
use proptest::prelude::*;
use std::collections::BTreeMap;

const JOB: JobUuid = JobUuid(0);
const STEPS: u64 = 4;
const BROKER: ConnectionId = ConnectionId(0);

#[derive(Debug, Clone)]
enum Move {
    /// The broker offers a slot of a hostile manager.
    Offer(LeaseId),
    /// A message on the connection of the first lease, which may name the second.
    Manager(LeaseId, ManagerToClient),
    Alive(LeaseId),
    Closed(LeaseId),
    BrokerReconnects,
    Pass(Millis),
}

struct Bench {
    job: Job,
    now: MonotonicTime,
    delivered: BTreeMap<StepNumber, u32>,
    /// The lease under which each step was sent last.
    sent: BTreeMap<StepNumber, LeaseId>,
}

impl Bench {
    fn new(repetition: Repetition) -> Self {
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 40 }, bundle: None };
        let job = Job::new(JOB, wanted, repetition, Rules::ALL);
        let now = MonotonicTime(1_000_000);
        let mut bench = Self { job, now, delivered: BTreeMap::new(), sent: BTreeMap::new() };
        bench.event(Event::BrokerConnected(BROKER));
        for step in (0..STEPS).map(StepNumber) {
            bench.event(Event::Submit { step, bytes: 10 });
        }
        bench.event(Event::Finish);
        bench
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        let actions = self.job.handle(event, self.now);
        self.check(&actions);
        actions
    }

    fn check(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Deliver(step) => {
                    assert!(self.sent.contains_key(step), "{step:?} was never sent");
                    *self.delivered.entry(*step).or_default() += 1;
                }
                Action::ToManager(lease, ClientToManager::Step { step, .. }) => {
                    self.sent.insert(*step, *lease);
                }
                _ => {}
            }
        }
        assert!(self.delivered.values().all(|times| *times == 1), "{:?}", self.delivered);
        if let Some(next) = self.job.next_deadline() {
            assert!(next > self.now && next <= self.now + timing::SILENT);
        }
        assert_small(&self.job);
    }

    fn play(&mut self, what: &Move) {
        let (before, lease) = (self.job.clone(), self.job.lease());
        match what.clone() {
            Move::Offer(lease) => {
                let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
                let offer = BrokerToClient::Offer { job: JOB, lease, endpoint };
                self.event(Event::Broker(BROKER, offer));
            }
            Move::Manager(of, message) => {
                let actions = self.event(Event::Manager(of, message));
                if lease != Some(of) {
                    assert_eq!((actions, &self.job), (vec![], &before));
                }
            }
            Move::Alive(of) => {
                self.event(Event::ManagerAlive(of));
            }
            Move::Closed(of) => {
                self.event(Event::ManagerClosed(of));
                if lease != Some(of) {
                    assert_eq!(self.job, before);
                }
            }
            Move::BrokerReconnects => {
                self.event(Event::BrokerClosed(BROKER));
                self.event(Event::BrokerConnected(BROKER));
            }
            Move::Pass(time) => {
                self.now += time;
                let actions = self.job.tick(self.now);
                self.check(&actions);
            }
        }
    }

    /// An honest manager runs what is left.
    fn end_honestly(&mut self) {
        // The hostile manager is silent at last.
        self.play(&Move::Pass(timing::SILENT));
        let lease = LeaseId(100);
        self.play(&Move::Offer(lease));
        self.event(Event::Manager(lease, ManagerToClient::Attached { lease }));
        for step in (0..STEPS).map(StepNumber) {
            self.event(Event::Manager(lease, ManagerToClient::StepDone { lease, step }));
        }
    }
}

fn lease() -> impl Strategy<Value = LeaseId> {
    (1..4_u128).prop_map(LeaseId)
}

fn message() -> impl Strategy<Value = ManagerToClient> {
    let step = prop_oneof![8 => 0..STEPS + 1, 1 => Just(u64::MAX)].prop_map(StepNumber);
    prop_oneof![
        4 => lease().prop_map(|lease| ManagerToClient::Attached { lease }),
        1 => lease().prop_map(|lease| ManagerToClient::Gone { lease }),
        1 => lease().prop_map(|lease| ManagerToClient::Yield { lease }),
        4 => (lease(), step.clone()).prop_map(|(lease, step)| ManagerToClient::StepDone { lease, step }),
        1 => (lease(), step).prop_map(|(lease, step)| ManagerToClient::StepRefused { lease, step }),
    ]
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => lease().prop_map(Move::Offer),
        10 => (lease(), message()).prop_map(|(lease, message)| Move::Manager(lease, message)),
        2 => lease().prop_map(Move::Alive),
        1 => lease().prop_map(Move::Closed),
        1 => Just(Move::BrokerReconnects),
        1 => (0..6_000_u64).prop_map(|time| Move::Pass(Millis(time))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_managers_make_a_job_deliver_a_step_twice_or_hold_it_for_ever(
        moves in prop::collection::vec(any_move(), 1..60),
        repetition in prop::sample::select(vec![Repetition::Allowed, Repetition::Forbidden]),
    ) {
        let mut bench = Bench::new(repetition);
        for what in &moves {
            bench.play(what);
        }
        bench.end_honestly();
        match bench.job.phase() {
            Phase::Ended(End::Done) => {
                let all: Vec<_> = (0..STEPS).map(|step| (StepNumber(step), 1)).collect();
                assert_eq!(bench.delivered.into_iter().collect::<Vec<_>>(), all);
            }
            Phase::Ended(End::Lost(_)) => assert_eq!(repetition, Repetition::Forbidden),
            phase => panic!("{phase:?}"),
        }
    }
}

#[test]
fn a_manager_that_only_pings_keeps_an_offered_job_for_five_seconds_and_an_attached_one_until_its_program_gives_up()
 {
    let mut bench = Bench::new(Repetition::Allowed);
    let lease = LeaseId(1);
    bench.play(&Move::Offer(lease));
    for _ in 0..6 {
        bench.play(&Move::Pass(Millis(1_000)));
        bench.play(&Move::Alive(lease));
    }
    assert_eq!(bench.job.phase(), &Phase::Waiting);
    bench.play(&Move::Offer(lease));
    bench.play(&Move::Manager(lease, ManagerToClient::Attached { lease }));
    for _ in 0..600 {
        bench.play(&Move::Pass(Millis(1_000)));
        bench.play(&Move::Alive(lease));
    }
    assert_eq!(bench.job.lease(), Some(lease));
    bench.event(Event::Cancel);
    assert_eq!(bench.job.phase(), &Phase::Ended(End::Cancelled));
}

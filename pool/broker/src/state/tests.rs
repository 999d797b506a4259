mod bundles;
mod groups;
mod groups_end;
mod liars;
mod moves;
mod quotas;
mod reasons;
mod sizes;
mod takeover;
mod views;

use super::*;
use crate::policy::TenantSettings;
use fpga_board::slots::SlotIndex;
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::thresholds::Thresholds;
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::{Floor, GoalRules};
use fpga_pool_api::client::SealedTicket;
use fpga_pool_api::manager::{Board, LentSlot};
use fpga_pool_api::v1;
use fpga_pool_leases::ids::{Attempt, BundleUuid, GroupUuid, Incarnation};
use fpga_pool_leases::lease::{Bundle, Endpoint, Goal, Group, Lease, Usage, Wanted, Work};
use fpga_pool_leases::messages::{Activity, Refusal, SlotCause, SlotReport, SlotStatus};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

const CLIENT: ConnectionId = ConnectionId(1000);

/// Leases with their managers.
type Leases = Vec<(u64, Lease)>;

/// Jobs that may wait at once.
const MOST_WAITING: usize = 2000;

/// An active broker with its clock, and its managers: manager n has connection n.
struct Bench {
    state: State,
    now: Moment,
    seqs: BTreeMap<u64, u64>,
    registry: Registry,
}

impl Bench {
    fn new(tenants: &str) -> Self {
        Self::with(GoalRules::default(), Millis::from_secs(5), tenants)
    }

    /// A broker that leaves all of so many slots to groups, and divides them ten times a second.
    fn of_groups(slots: u32) -> Self {
        let rules = GoalRules { floor: Floor::None, ..GoalRules::default() };
        Self::with(rules, Millis(100), &format!("[default]\nguaranteed-slots = {slots}\n"))
    }

    fn with(rules: GoalRules, period: Millis, tenants: &str) -> Self {
        let jobs = PoolPolicy::shared(Thresholds::new(Vec::new()).unwrap());
        Self::with_jobs(jobs, rules, period, tenants)
    }

    fn with_jobs(jobs: PoolPolicy, rules: GoalRules, period: Millis, tenants: &str) -> Self {
        let policy = PolicySettings {
            jobs,
            most_waiting: MOST_WAITING,
            goals: GoalPolicy::Throughput,
            rules,
            period,
            tenants: TenantSettings::parse(tenants).unwrap(),
        };
        let limits = Limits { jobs: 2 * MOST_WAITING, managers: 100, slots_per_manager: 64 };
        let settings = Settings { limits, policy, tickets: TicketKey::of(&[1; 32]) };
        let mut lease = 0_u128;
        let new_lease_id = move || {
            lease += 1;
            LeaseId(lease)
        };
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let now = Moment { now: MonotonicTime(1_000), wall: WallTime(1_000_000) };
        let mut bench =
            Self { state: State::new(settings, metrics, new_lease_id), now, seqs: BTreeMap::new(), registry };
        let digest = Digest::from_bytes([1; 32]);
        let library = format!("[[accelerators.aes]]\nboard = \"a10\"\ndigest = \"{digest}\"\n");
        bench.input(Input::Catalog(Catalog::parse(&library).unwrap()));
        bench.input(Input::MayLead { term: Term(0) });
        bench.input(Input::Swapped(SwapOutcome::Done));
        bench.pass(Millis::from_secs(2));
        assert!(bench.state.is_active());
        bench
    }

    /// A broker that takes office after another one, and listens to managers for a while.
    fn listening(tenants: &str) -> Self {
        let mut bench = Self::new(tenants);
        bench.input(Input::LeaseLost);
        bench.input(Input::MayLead { term: Term(1) });
        bench.input(Input::Swapped(SwapOutcome::Done));
        assert!(!bench.state.is_active());
        bench
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        self.state.handle(input, self.now)
    }

    /// Lets time pass, with all that is due meanwhile.
    fn pass(&mut self, time: Millis) -> Vec<Output> {
        let (end, wall) = (self.now.now + time, self.now.wall + time);
        let mut outputs = Vec::new();
        while let Some(due) = self.state.next_deadline().filter(|due| *due <= end) {
            self.now.wall += due - self.now.now;
            self.now.now = self.now.now.max(due);
            outputs.extend(self.state.tick(self.now));
            assert!(
                self.state.next_deadline().is_none_or(|next| next > self.now.now),
                "a tick leaves work undone"
            );
        }
        self.now = Moment { now: end, wall };
        outputs
    }

    fn register(&mut self, manager: u64, slots: Vec<SlotStatus>) -> Vec<Output> {
        self.register_kind(manager, "a10", slots)
    }

    fn register_kind(&mut self, manager: u64, kind: &str, slots: Vec<SlotStatus>) -> Vec<Output> {
        let lent = vec![LentSlot::default(); slots.len()];
        self.register_board(manager, LentBoard { board: board(manager, kind), slots: lent }, slots)
    }

    fn register_board(&mut self, manager: u64, lent: LentBoard, slots: Vec<SlotStatus>) -> Vec<Output> {
        self.seqs.insert(manager, 0);
        let endpoint = Endpoint { address: "a:1".into(), key: None, socket: None };
        let (incarnation, max_term) = (Incarnation(7), Term(0));
        let register = ManagerToBroker::Register { incarnation, max_term, endpoint, slots };
        self.input(Input::Register(ConnectionId(manager), ManagerId(manager), lent, register))
    }

    fn manager(&mut self, manager: u64, message: ManagerToBroker) -> Vec<Output> {
        self.input(Input::Manager(ConnectionId(manager), ManagerId(manager), message))
    }

    fn report(&mut self, manager: u64, slot: SlotIndex, status: SlotStatus) -> Vec<Output> {
        let usage = Usage { bytes: 5, actions: 1, busy: Millis(1) };
        self.slot_report(manager, slot, status, SlotCause::Unchanged, usage)
    }

    /// A manager tells what a held lease has used.
    fn report_usage(&mut self, manager: u64, lease: &Lease, usage: Usage) -> Vec<Output> {
        let status = SlotStatus::Held(lease.clone(), Activity::Busy);
        self.slot_report(manager, lease.slot, status, SlotCause::Used, usage)
    }

    fn slot_report(
        &mut self,
        manager: u64,
        slot: SlotIndex,
        status: SlotStatus,
        why: SlotCause,
        usage: Usage,
    ) -> Vec<Output> {
        let next = self.seqs.entry(manager).or_default();
        let seq = *next;
        *next += 1;
        self.manager(manager, ManagerToBroker::Slot(SlotReport { seq, slot, status, why, usage }))
    }

    /// A manager prepares a lease, and its client begins to compute.
    fn hold(&mut self, manager: u64, lease: &Lease) {
        self.manager(manager, ManagerToBroker::Prepared { lease: lease.id });
        self.report(manager, lease.slot, SlotStatus::Held(lease.clone(), Activity::Busy));
    }

    fn want(&mut self, job: u128, accelerator: &str, work: Work) -> Vec<Output> {
        self.want_with(job, Wanted { accelerator: accelerator.into(), work, bundle: None }, None)
    }

    /// A job asks for a slot, and shows a ticket.
    fn want_with(&mut self, job: u128, wanted: Wanted, ticket: Option<SealedTicket>) -> Vec<Output> {
        let want = Want { job: JobUuid(job), wanted, ticket, attempt: Attempt(1) };
        let client = Client { tenant: Tenant::new("a"), home: Some("n1".into()) };
        self.input(Input::Want(CLIENT, client, want))
    }

    fn cancel(&mut self, job: u128) -> Vec<Output> {
        let client = Client { tenant: Tenant::new("a"), home: Some("n1".into()) };
        self.input(Input::Cancel(CLIENT, client, JobUuid(job)))
    }

    fn run(&mut self, job: u128) -> Vec<Output> {
        self.want(job, "aes", Work::Run { bytes: 10 })
    }

    /// A job of another tenant asks for a slot.
    fn run_of_another(&mut self, job: u128) -> Vec<Output> {
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes: 10 }, bundle: None };
        let want = Want { job: JobUuid(job), wanted, ticket: None, attempt: Attempt(1) };
        let client = Client { tenant: Tenant::new("b"), home: None };
        self.input(Input::Want(ConnectionId(CLIENT.0 + 1), client, want))
    }
}

/// A group that has a minimum, a maximum, and a throughput as its goal.
fn throughput_group(actions_per_hour: u64, least: u32, most: u32) -> Work {
    Work::Group(Group { id: GroupUuid(9), goal: Goal::Throughput { actions_per_hour }, least, most })
}

/// The board of a manager, on a node of its own.
fn board(manager: u64, kind: &str) -> Board {
    Board { name: "b".into(), kind: kind.into(), shell: None, node: format!("n{manager}").into() }
}

/// The leases that are to be prepared, with their managers.
fn prepares(outputs: &[Output]) -> Leases {
    let prepare = |output: &Output| match output {
        Output::ToManager(connection, BrokerToManager::Prepare { lease, .. }) => {
            Some((connection.0, lease.clone()))
        }
        _ => None,
    };
    outputs.iter().filter_map(prepare).collect()
}

fn cancelled(outputs: &[Output]) -> Vec<(u128, CancelCause, String)> {
    let cancelled = |output: &Output| match output {
        Output::ToClient(_, ToClient::Cancelled(of)) => Some((of.job.0, of.why, of.message.clone())),
        _ => None,
    };
    outputs.iter().filter_map(cancelled).collect()
}

fn recalls(outputs: &[Output]) -> usize {
    let is_recall = |output: &&Output| matches!(output, Output::ToManager(_, BrokerToManager::Recall { .. }));
    outputs.iter().filter(is_recall).count()
}

#[test]
fn a_job_that_no_slot_can_run_is_cancelled_after_30_s() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    bench.want(1, "unknown", Work::Run { bytes: 1 });
    bench.want(2, "unknown", throughput_group(1, 0, 1));
    assert_eq!(cancelled(&bench.pass(Millis(29_900))), []);
    let mut ended = cancelled(&bench.pass(Millis(200)));
    ended.sort_unstable_by_key(|(job, ..)| *job);
    assert_eq!(
        ended.iter().map(|(job, why, _)| (*job, *why)).collect::<Vec<_>>(),
        [(1, CancelCause::NoFittingSlot), (2, CancelCause::NoFittingSlot)]
    );
    assert!(ended[0].2.contains("could run unknown"), "{}", ended[0].2);
    assert!(bench.state.jobs.is_empty() && bench.state.jobs_of.is_empty());
}

#[test]
fn a_job_that_waits_for_a_kind_of_slot_gets_the_first_one_that_comes() {
    let mut bench = Bench::new("");
    bench.run(1);
    bench.pass(Millis::from_secs(20));
    assert_eq!(prepares(&bench.register(1, vec![SlotStatus::Free])).len(), 1);
}

#[test]
fn a_bitstream_that_two_slots_refuse_is_at_fault_and_the_slots_are_not() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 3]);
    let mut todo = prepares(&bench.run(1));
    for refusals in 1..=2 {
        let (manager, lease) = todo.pop().unwrap();
        let refused = ManagerToBroker::Refused { lease: lease.id, why: Refusal::BadBitstream };
        todo = prepares(&bench.manager(manager, refused));
        bench.report(manager, lease.slot, SlotStatus::Free);
        assert_eq!(todo.len(), 2 - refusals, "another slot is tried once");
    }
    bench.pass(Millis::from_secs(2));
    assert_eq!(bench.state.policy.class_views()[0].slots, 3, "all slots are in the pool");
    assert_eq!(cancelled(&bench.pass(Millis::from_secs(29)))[0].1, CancelCause::NoFittingSlot);
    // After a minute the bitstream may be tried again.
    bench.pass(Millis::from_secs(31));
    assert_eq!(prepares(&bench.run(2)).len(), 1);
}

#[test]
fn a_job_whose_lease_came_while_its_client_was_gone_waits_again() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let (manager, lease) = prepares(&bench.run(1)).remove(0);
    bench.input(Input::ClientClosed(CLIENT));
    let late = bench.manager(manager, ManagerToBroker::Prepared { lease: lease.id });
    assert_eq!(recalls(&late), 1);
    assert_eq!(prepares(&bench.run(1)), [], "the slot is not free yet");
    let again = prepares(&bench.report(manager, lease.slot, SlotStatus::Free));
    assert_eq!(again.iter().map(|(_, lease)| lease.job).collect::<Vec<_>>(), [JobUuid(1)]);
}

#[test]
fn a_client_that_asks_again_while_its_lease_is_prepared_gets_the_offer() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 2]);
    let (manager, lease) = prepares(&bench.run(1)).remove(0);
    bench.input(Input::ClientClosed(CLIENT));
    assert_eq!(prepares(&bench.run(1)), [], "it has a lease");
    let prepared = bench.manager(manager, ManagerToBroker::Prepared { lease: lease.id });
    let is_offer = |output: &&Output| matches!(output, Output::ToClient(CLIENT, ToClient::Offer(_)));
    assert_eq!(prepared.iter().filter(is_offer).count(), 1, "{prepared:?}");
}

#[test]
fn the_wait_of_a_job_counts_once_with_its_offer() {
    let mut bench = Bench::new("");
    bench.run(1);
    bench.pass(Millis::from_secs(3));
    let asked = prepares(&bench.register(1, vec![SlotStatus::Free]));
    let [(manager, lease)] = &asked[..] else { panic!("{asked:?}") };
    assert!(bench.metrics().contains("\nwait_seconds_count 0\n"), "{}", bench.metrics());
    for _ in 0..2 {
        bench.manager(*manager, ManagerToBroker::Prepared { lease: lease.id });
        let told = bench.metrics();
        assert!(
            told.contains("\nwait_seconds_sum 3.0\n") && told.contains("\nwait_seconds_count 1\n"),
            "{told}"
        );
    }
}

//! A broker, a manager with six slots, and a client, with the messages between them. A message that the broker sent or gets
//! belongs to the present connection: a cut loses those that are under way.

use super::super::*;
use super::Move;
use fpga_pool_leases::broker::SlotRecord;
use fpga_pool_leases::client::{self, Job, Repetition};
use fpga_pool_leases::ids::StepNumber;
use fpga_pool_leases::manager::{self, LoadOutcome, Manager};
use fpga_pool_leases::messages::{ClientToManager, ManagerToClient};

const SLOTS: u32 = 6;
const MANAGER: ManagerId = ManagerId(1);
/// Time in which everything that is under way comes to its end, without the end of a client's patience.
const REST: Millis = Millis::from_secs(40);

/// The world.
pub(super) struct World {
    pub(super) bench: Bench,
    pub(super) manager: Manager,
    /// The manager's connection to the broker, and the client's.
    manager_link: ConnectionId,
    client_link: ConnectionId,
    pub(super) jobs: BTreeMap<JobUuid, Job>,
    pub(super) sessions: BTreeMap<LeaseId, Session>,
    pub(super) tasks: Vec<Task>,
    pub(super) from_manager: VecDeque<ManagerToBroker>,
    pub(super) to_manager: VecDeque<BrokerToManager>,
    pub(super) from_client: VecDeque<ClientToBroker>,
    pub(super) to_client: VecDeque<ToClient>,
    /// Open groups and their jobs.
    groups: BTreeMap<u8, Vec<JobUuid>>,
    /// Jobs by themselves, and bundles.
    runs: Vec<Vec<JobUuid>>,
    numbers: u64,
}

/// The connection that was made for a lease.
pub(super) struct Session {
    pub(super) connection: ConnectionId,
    pub(super) job: JobUuid,
    /// `None` is the end of the connection.
    pub(super) to_manager: VecDeque<Option<ClientToManager>>,
    pub(super) to_client: VecDeque<Option<ManagerToClient>>,
}

/// What the board does.
pub(super) enum Task {
    Load(SlotIndex, LeaseId),
    Step(SlotIndex, LeaseId, StepNumber),
}

/// A way of messages that has one.
#[derive(Clone, Copy)]
enum Way {
    FromManager,
    ToManager,
    FromClient,
    ToClient,
    SessionToManager(LeaseId),
    SessionToClient(LeaseId),
}

impl World {
    pub(super) fn new() -> Self {
        let config = manager::Config {
            incarnation: Incarnation(7),
            endpoint: Endpoint { address: "a:1".into(), key: None, socket: None },
            slots: SLOTS,
            longest_step: Millis(100),
        };
        let (manager, _) = Manager::new(config, Rules::default());
        let mut world = Self {
            bench: Bench::of_groups(SLOTS),
            manager,
            manager_link: ConnectionId(1),
            client_link: CLIENT,
            jobs: BTreeMap::new(),
            sessions: BTreeMap::new(),
            tasks: Vec::new(),
            from_manager: VecDeque::new(),
            to_manager: VecDeque::new(),
            from_client: VecDeque::new(),
            to_client: VecDeque::new(),
            groups: BTreeMap::new(),
            runs: Vec::new(),
            numbers: 0,
        };
        world.tell_manager(manager::Event::ChildrenReaped);
        world.tell_manager(manager::Event::BrokerConnected(world.manager_link));
        world.arrives(Way::FromManager);
        world
    }

    pub(super) fn apply(&mut self, what: Move) {
        match what {
            Move::Open(group) => self.open(group),
            Move::End(group) => {
                self.cancel(self.groups.get(&group).cloned().unwrap_or_default(), Some(group));
            }
            Move::Run => {
                let job = self.begin(Work::Run { bytes: 10 }, None);
                self.runs.push(vec![job]);
            }
            Move::RunMany(size) => {
                let bundle = Bundle { id: BundleUuid(u128::from(self.number())), size };
                let jobs = (0..size).map(|_| self.begin(Work::Run { bytes: 10 }, Some(bundle))).collect();
                self.runs.push(jobs);
            }
            Move::EndRun => {
                let ended = self.runs.pop();
                self.cancel(ended.unwrap_or_default(), None);
            }
            Move::Arrives(which) => {
                let ways = self.ways();
                if !ways.is_empty() {
                    self.arrives(ways[which % ways.len()]);
                }
            }
            Move::TaskEnds(which) => {
                if !self.tasks.is_empty() {
                    let task = self.tasks.remove(which % self.tasks.len());
                    self.end_task(&task);
                }
            }
            Move::Submit(which) => {
                let with_room: Vec<JobUuid> =
                    self.jobs.iter().filter(|(_, job)| job.room() > 0).map(|(id, _)| *id).collect();
                if !with_room.is_empty() {
                    let step = StepNumber(self.number());
                    self.tell_job(
                        with_room[which % with_room.len()],
                        client::Event::Submit { step, bytes: 1 },
                    );
                }
            }
            Move::Settle(messages) => {
                for _ in 0..messages {
                    let ways = self.ways();
                    if let Some(way) = ways.first() {
                        self.arrives(*way);
                    }
                }
            }
            Move::Pass(time) => self.pass(Millis(time)),
            Move::CutManager => self.cut_manager(),
            Move::CutClient => self.cut_client(),
        }
    }

    /// All that is under way arrives and ends, and some time passes.
    pub(super) fn settle(&mut self) {
        let until = self.bench.now.now + REST;
        while self.bench.now.now < until {
            while let Some(way) = self.ways().first().copied() {
                self.arrives(way);
            }
            if let Some(task) = self.tasks.pop() {
                self.end_task(&task);
            } else {
                self.pass(Millis(90));
            }
        }
    }

    /// All programs end.
    pub(super) fn end(&mut self) {
        let all: Vec<JobUuid> = self.jobs.keys().copied().collect();
        self.groups.clear();
        self.cancel(all, None);
    }

    /// Nobody waits for a slot that nobody has.
    pub(super) fn check_at_rest(&self) {
        let state = &self.bench.state;
        state.policy.check();
        let waiting: Vec<JobUuid> = state.broker.jobs().map(|job| job.id).collect();
        let of_clients = self.jobs.iter().filter(|(_, job)| *job.phase() == client::Phase::Waiting);
        assert_eq!(waiting, of_clients.map(|(id, _)| *id).collect::<Vec<_>>(), "jobs that wait");
        let free = state.broker.slots().filter(|(.., record)| **record == SlotRecord::Free).count();
        let bundles: Vec<Bundle> = state.broker.jobs().filter_map(|job| job.wanted.bundle).collect();
        assert!(bundles.iter().all(|bundle| bundle.size as usize > free), "{free} slots for {bundles:?}");
        let is_idle = free > 0 && bundles.is_empty();
        assert!(waiting.is_empty() || !is_idle, "{free} slots are free while {waiting:?} wait");
    }

    pub(super) fn check_ended(&self) {
        let state = &self.bench.state;
        assert_eq!(state.broker.jobs().count(), 0);
        assert!(state.broker.slots().all(|(.., record)| *record == SlotRecord::Free));
        assert!(state.jobs.is_empty() && state.granted.is_empty());
        state.policy.check();
        let view = state.view(&Viewer::Operator, self.bench.now);
        assert!(view.groups.is_empty(), "{:?}", view.groups);
        assert!(view.tenants.iter().all(|of| (of.waiting, of.held) == (0, 0)), "{:?}", view.tenants);
        let class = &view.classes[0];
        assert_eq!((class.slots, class.jobs, class.groups), (SLOTS, 0, 0));
    }

    fn open(&mut self, group: u8) {
        if self.groups.contains_key(&group) {
            return;
        }
        let goal = Goal::Deadline { actions: 1_000_000, within: Millis::from_secs(1000) };
        let of = Group { id: GroupUuid(u128::from(self.number())), goal, least: 0, most: SLOTS };
        let jobs = (0..SLOTS).map(|_| self.begin(Work::Group(of), None)).collect();
        self.groups.insert(group, jobs);
    }

    fn begin(&mut self, work: Work, bundle: Option<Bundle>) -> JobUuid {
        let id = JobUuid(u128::from(self.number()));
        let wanted = Wanted { accelerator: "aes".into(), work, bundle };
        self.jobs.insert(id, Job::new(id, wanted, Repetition::Allowed, Rules::default()));
        self.tell_job(id, client::Event::BrokerConnected(self.client_link));
        id
    }

    fn cut_manager(&mut self) {
        let (old, new) = (self.manager_link, ConnectionId(10_000 + self.number()));
        self.manager_link = new;
        self.from_manager.clear();
        self.to_manager.clear();
        self.tell_broker(Input::ManagerClosed(old));
        self.tell_manager(manager::Event::BrokerClosed(old));
        self.tell_manager(manager::Event::BrokerConnected(new));
    }

    fn cut_client(&mut self) {
        let (old, new) = (self.client_link, ConnectionId(10_000 + self.number()));
        self.client_link = new;
        self.from_client.clear();
        self.to_client.clear();
        self.tell_broker(Input::ClientClosed(old));
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tell_job(job, client::Event::BrokerClosed(old));
            self.tell_job(job, client::Event::BrokerConnected(new));
        }
    }

    /// A job of a bundle has an Offer: all have left the bundle.
    fn leave_bundle_of(&mut self, job: JobUuid) {
        let bundle = self.jobs.get(&job).and_then(Job::bundle);
        let others = self.jobs.values_mut().filter(|other| bundle.is_some() && other.bundle() == bundle);
        others.for_each(Job::leave_bundle);
    }

    fn cancel(&mut self, jobs: Vec<JobUuid>, group: Option<u8>) {
        for job in jobs {
            self.tell_job(job, client::Event::Cancel);
        }
        if let Some(group) = group {
            self.groups.remove(&group);
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        let plain = [
            (Way::FromManager, self.from_manager.is_empty()),
            (Way::ToManager, self.to_manager.is_empty()),
            (Way::FromClient, self.from_client.is_empty()),
            (Way::ToClient, self.to_client.is_empty()),
        ];
        ways.extend(plain.into_iter().filter(|(_, is_empty)| !is_empty).map(|(way, _)| way));
        for (lease, session) in &self.sessions {
            if !session.to_manager.is_empty() {
                ways.push(Way::SessionToManager(*lease));
            }
            if !session.to_client.is_empty() {
                ways.push(Way::SessionToClient(*lease));
            }
        }
        ways
    }

    fn arrives(&mut self, way: Way) {
        match way {
            Way::FromManager => {
                let Some(message) = self.from_manager.pop_front() else { return };
                let link = self.manager_link;
                let input = if matches!(message, ManagerToBroker::Register { .. }) {
                    let board =
                        Board { name: "b".into(), kind: "a10".into(), shell: None, node: "n1".into() };
                    let lent = LentBoard { board, slots: vec![LentSlot::default(); SLOTS as usize] };
                    Input::Register(link, MANAGER, lent, message)
                } else {
                    Input::Manager(link, MANAGER, message)
                };
                self.tell_broker(input);
            }
            Way::ToManager => {
                let Some(message) = self.to_manager.pop_front() else { return };
                self.tell_manager(manager::Event::Broker(self.manager_link, message));
            }
            Way::FromClient => {
                let Some(message) = self.from_client.pop_front() else { return };
                let client = Client { tenant: Tenant::new("a"), home: None };
                self.tell_broker(match message {
                    ClientToBroker::Want { job, wanted, attempt, .. } => {
                        Input::Want(self.client_link, client, Want { job, wanted, ticket: None, attempt })
                    }
                    ClientToBroker::Cancel { job } => Input::Cancel(self.client_link, client, job),
                });
            }
            Way::ToClient => {
                let Some(message) = self.to_client.pop_front() else { return };
                if let ToClient::Offer(offer) = &message
                    && !self.jobs.contains_key(&offer.job)
                {
                    self.attach(offer.job, offer.lease);
                    self.close(offer.lease);
                } else if let Some(told) = message.message() {
                    let job = match &told {
                        BrokerToClient::Ticket(ticket) => ticket.job,
                        BrokerToClient::Offer { job, .. } => {
                            self.leave_bundle_of(*job);
                            *job
                        }
                        BrokerToClient::Cancel { job, .. } => *job,
                    };
                    self.tell_job(job, client::Event::Broker(self.client_link, told));
                }
            }
            Way::SessionToManager(lease) => {
                let Some(session) = self.sessions.get_mut(&lease) else { return };
                let (connection, message) = (session.connection, session.to_manager.pop_front());
                match message.flatten() {
                    Some(message) => self.tell_manager(manager::Event::Client(connection, message)),
                    None => self.tell_manager(manager::Event::ClientClosed(connection)),
                }
            }
            Way::SessionToClient(lease) => {
                let Some(session) = self.sessions.get_mut(&lease) else { return };
                let (job, message) = (session.job, session.to_client.pop_front());
                match message.flatten() {
                    Some(message) => self.tell_job(job, client::Event::Manager(lease, message)),
                    None => self.tell_job(job, client::Event::ManagerClosed(lease)),
                }
            }
        }
    }

    fn end_task(&mut self, task: &Task) {
        self.tell_manager(match *task {
            Task::Load(slot, lease) => manager::Event::Loaded { slot, lease, outcome: LoadOutcome::Loaded },
            Task::Step(slot, lease, step) => {
                let usage = Usage { bytes: 1, actions: 1, busy: Millis(10) };
                manager::Event::StepEnded { slot, lease, step, usage }
            }
        });
    }
}

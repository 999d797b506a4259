//! The state of all parties, of what is under way between them, and of the board.

use super::invariant::Invariant;
use super::link::{Link, Side};
use crate::broker::{self, Broker, Grant, Role};
use crate::client::{self, Job, Phase, Repetition};
use crate::ids::{
    BundleUuid, ConnectionId, GroupUuid, Incarnation, JobUuid, LeaseId, ManagerId, StepNumber, Term,
};
use crate::lease::{Bundle, Endpoint, Goal, Group, Wanted, Work};
use crate::manager::{self, Manager};
use crate::messages::{
    BrokerToClient, BrokerToManager, ClientToBroker, ClientToManager, ManagerToBroker, ManagerToClient,
    SlotStatus,
};
use crate::rules::Rules;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The only manager.
pub(super) const MANAGER: ManagerId = ManagerId(0);
/// The moment at which the search stands still.
pub(super) const MOMENT: MonotonicTime = MonotonicTime(1_000_000);
const LIMITS: broker::Limits = broker::Limits { jobs: 16, managers: 4, slots_per_manager: 4 };
/// How long a step takes.
pub const STEP: Millis = Millis::from_secs(1);

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Number of clients, each with one job.
    pub clients: usize,
    /// What their jobs are.
    pub jobs: Jobs,
    /// Number of slots.
    pub slots: u32,
    /// Number of brokers.
    pub brokers: usize,
    /// Number of steps of each job.
    pub steps: u64,
    /// Number of faults: cuts, crashes, failures of the board, a second active broker, a job that is given up.
    pub faults: u32,
    /// Whether the clients are connected at the start.
    pub clients_are: Clients,
    /// The rules that hold.
    pub rules: Rules,
}

/// What the clients' jobs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Jobs {
    /// Each is a group of one job, with a deadline.
    Groups,
    /// Each processes bytes.
    Runs,
    /// The same, and all of them are one bundle of one process, which crashes as a whole. The jobs have connections of
    /// their own nevertheless, so that one may be lost without the other.
    Bundle,
}

/// Where clients are at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clients {
    /// Their jobs wait at the first broker.
    Waiting,
    /// They have connected to no broker.
    Away,
}

pub(super) type ManagerLink = Link<usize, ManagerToBroker, BrokerToManager>;
pub(super) type ClientLink = Link<(usize, usize), ClientToBroker, BrokerToClient>;
pub(super) type LeaseLink = Link<(usize, LeaseId), ClientToManager, ManagerToClient>;

/// The state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) now: MonotonicTime,
    /// `None` between a crash and the restart.
    pub(super) manager: Option<Manager>,
    /// Number of the manager's restarts.
    pub(super) manager_life: u32,
    pub(super) board: Board,
    pub(super) brokers: Vec<Broker>,
    /// The exchange of the term that each broker waits for: expected, next.
    pub(super) swaps: Vec<Option<(Term, Term)>>,
    pub(super) kubernetes_lease: KubernetesLease,
    pub(super) clients: Vec<Client>,
    /// From the manager to a broker.
    pub(super) manager_links: Vec<ManagerLink>,
    /// From a client to a broker.
    pub(super) client_links: Vec<ClientLink>,
    /// From a client to the manager, for a lease.
    pub(super) lease_links: Vec<LeaseLink>,
    pub(super) faults_left: u32,
    pub(super) ghosts: Ghosts,
    setup: HashedSetup,
}

/// The parts of the setup that restarted parties need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HashedSetup {
    jobs: Jobs,
    slots: u32,
    steps: u64,
    faults: u32,
    rules: Rules,
}

/// What runs on the board, whatever the manager believes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Board {
    pub(super) regions: Vec<Region>,
    /// Whether the manager has asked for the end of its former life's processes.
    pub(super) reap: bool,
}

/// What runs in a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Region {
    pub(super) tasks: BTreeSet<(LeaseId, StepNumber)>,
    pub(super) load: Option<LeaseId>,
    pub(super) kill: Option<LeaseId>,
    pub(super) probe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KubernetesLease {
    pub(super) term: Term,
    pub(super) holder: Option<usize>,
}

/// A client's process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// `None` between a crash and the restart.
    pub(super) job: Option<Job>,
    /// Number of restarts. The job of each life is another one.
    pub(super) life: u32,
    /// How often the program got each step's output.
    pub(super) delivered: BTreeMap<StepNumber, u32>,
}

/// What no party knows, but an invariant speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ghosts {
    /// Leases that have ended, as long as anything still names them.
    pub(super) ended: BTreeSet<LeaseId>,
    /// The held leases whose Recall has arrived.
    pub(super) recalled: BTreeSet<LeaseId>,
    /// The highest term that the manager has accepted in this life.
    pub(super) max_term: Term,
    /// Each live job's first ticket.
    pub(super) arrivals: BTreeMap<JobUuid, WallTime>,
    /// What a message broke, which the state after it does not show.
    pub(super) broken: Option<(Invariant, &'static str)>,
}

impl World {
    /// All parties have just started, and nothing is connected.
    #[must_use]
    pub fn cold(setup: &Setup) -> Self {
        let mut world = Self {
            now: MOMENT,
            manager: None,
            manager_life: 0,
            board: Board { regions: vec![Region::default(); setup.slots as usize], reap: false },
            brokers: vec![Broker::new(LIMITS, setup.rules); setup.brokers],
            swaps: vec![None; setup.brokers],
            kubernetes_lease: KubernetesLease { term: Term(0), holder: None },
            clients: vec![Client { job: None, life: 0, delivered: BTreeMap::new() }; setup.clients],
            manager_links: Vec::new(),
            client_links: Vec::new(),
            lease_links: Vec::new(),
            faults_left: setup.faults,
            ghosts: Ghosts::default(),
            setup: HashedSetup {
                jobs: setup.jobs,
                slots: setup.slots,
                steps: setup.steps,
                faults: setup.faults,
                rules: setup.rules,
            },
        };
        world.start_manager();
        for client in 0..setup.clients {
            world.start_client(client);
        }
        world
    }

    pub(super) fn start_manager(&mut self) {
        let incarnation = Incarnation(u128::from(self.manager_life));
        let endpoint = Endpoint { address: "manager".into(), key: None, socket: None };
        let config = manager::Config { incarnation, endpoint, slots: self.setup.slots, longest_step: STEP };
        let (manager, actions) = Manager::new(config, self.setup.rules);
        self.manager = Some(manager);
        self.manager_actions(actions);
    }

    /// A broker's process that has just started.
    pub(super) fn fresh_broker(&self) -> Broker {
        Broker::new(LIMITS, self.setup.rules)
    }

    pub(super) fn start_client(&mut self, index: usize) {
        let Some(client) = self.clients.get(index) else { return };
        let id = JobUuid((index as u128 + 1) * 16 + u128::from(client.life));
        let steps = || (0..self.setup.steps).map(StepNumber);
        let goal = Goal::Deadline { actions: self.setup.steps, within: Millis::from_secs(60) };
        let work = match self.setup.jobs {
            Jobs::Groups => Work::Group(Group { id: GroupUuid(id.0), goal, least: 0, most: 1 }),
            Jobs::Runs | Jobs::Bundle => Work::Run { bytes: steps().map(bytes_of).sum() },
        };
        let size = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
        let bundle = Bundle { id: BundleUuid(u128::from(client.life)), size };
        let bundle = (self.setup.jobs == Jobs::Bundle).then_some(bundle);
        let wanted = Wanted { accelerator: "aes".into(), work, bundle };
        let mut job = Job::new(id, wanted, Repetition::Allowed, self.setup.rules);
        for step in steps() {
            job.handle(client::Event::Submit { step, bytes: bytes_of(step) }, self.now);
        }
        job.handle(client::Event::Finish, self.now);
        if let Some(client) = self.clients.get_mut(index) {
            client.job = Some(job);
        }
    }

    /// The bytes of a client's steps whose outputs are not there; `None` if the job does not count bytes.
    pub(super) fn rest(&self, client: usize) -> Option<u64> {
        let delivered = &self.clients.get(client)?.delivered;
        let steps = (0..self.setup.steps).map(StepNumber).filter(|step| !delivered.contains_key(step));
        (self.setup.jobs != Jobs::Groups).then(|| steps.map(bytes_of).sum())
    }

    /// The clients that are in one process with a client: they crash together.
    pub(super) fn process_of(&self, client: usize) -> Range<usize> {
        match self.setup.jobs {
            Jobs::Groups | Jobs::Runs => client..client + 1,
            Jobs::Bundle => 0..self.clients.len(),
        }
    }

    /// A grant to a job; the lease's id is still to be chosen.
    pub(super) fn grant_of(&self, job: JobUuid, slot: SlotIndex) -> Grant {
        let (digest, lease) = (Digest::from_bytes([1; 32]), LeaseId(0));
        // The search stands still: each step's end is told.
        let usage_every = Some(Millis(0));
        Grant { job, manager: MANAGER, slot, digest, lease, usage_every }
    }

    /// The present moment of a broker: first arrivals that are asked for after different faults differ.
    pub(super) fn moment(&self) -> Moment {
        Moment { now: self.now, wall: WallTime(u64::from(1 + self.setup.faults - self.faults_left)) }
    }

    /// All slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotIndex> + use<> {
        (0..self.setup.slots).map(SlotIndex)
    }

    /// The state of a slot, with its lease.
    pub(super) fn slot(&self, slot: SlotIndex) -> Option<SlotStatus> {
        self.manager.as_ref().and_then(|manager| manager.slot(slot))
    }

    /// What runs in each slot.
    pub(super) fn regions(&self) -> impl Iterator<Item = (SlotIndex, &Region)> {
        (0..).map(SlotIndex).zip(&self.board.regions)
    }

    pub(super) fn region_mut(&mut self, slot: SlotIndex) -> Option<&mut Region> {
        self.board.regions.get_mut(slot.0 as usize)
    }

    /// All steps that run.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (LeaseId, StepNumber)> {
        self.board.regions.iter().flat_map(|region| region.tasks.iter().copied())
    }

    /// A client that lives and has this job.
    pub(super) fn has_live_job(&self, id: JobUuid) -> bool {
        self.clients.iter().any(|client| client.job.as_ref().is_some_and(|job| job.id() == id))
    }

    pub(super) fn is_standby(&self, broker: usize) -> bool {
        self.brokers.get(broker).is_none_or(|broker| broker.role() == Role::Standby)
    }

    /// Whether a client waits for a lease.
    pub(super) fn is_waiting(&self, client: usize) -> bool {
        let job = self.clients.get(client).and_then(|client| client.job.as_ref());
        job.is_some_and(|job| *job.phase() == Phase::Waiting)
    }

    /// Whether every client that lives has all its outputs, or has given its job up.
    pub(super) fn is_done(&self) -> bool {
        self.clients
            .iter()
            .all(|client| client.job.as_ref().is_none_or(|job| matches!(job.phase(), Phase::Ended(_))))
    }

    /// The smallest id that no connection has.
    pub(super) fn unused_connection(&self) -> ConnectionId {
        let managers = self.manager_links.iter().map(|link| link.id);
        let clients = self.client_links.iter().map(|link| link.id);
        let used: BTreeSet<_> =
            managers.chain(clients).chain(self.lease_links.iter().map(|link| link.id)).collect();
        let unused = (0..).map(ConnectionId).find(|id| !used.contains(id));
        unused.unwrap_or(ConnectionId(u64::MAX))
    }

    /// Removes connections that both sides have left, and what is under way to nobody.
    pub(super) fn sweep(&mut self) {
        self.manager_links.retain(|link| !link.is_over());
        self.client_links.retain(|link| !link.is_over());
        self.lease_links.retain(|link| !link.is_over());
        for link in &mut self.manager_links {
            if !link.is_open_at(Side::Listener) {
                link.up.clear();
            }
        }
        for link in &mut self.client_links {
            if !link.is_open_at(Side::Dialer) {
                link.down.clear();
            }
            if !link.is_open_at(Side::Listener) {
                link.up.clear();
            }
        }
    }
}

/// Bytes of a step: those of no two sets of steps are equal.
fn bytes_of(step: StepNumber) -> u64 {
    1 << step.0.min(63)
}

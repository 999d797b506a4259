//! The state of all parties, of what is under way between them, and of the board.

use super::link::{Link, Side};
use crate::broker::{self, Broker, Grant, Role};
use crate::client::{self, Job, Phase, Repetition};
use crate::ids::{ConnectionId, GroupUuid, Incarnation, JobUuid, LeaseId, ManagerId, StepNumber, Term};
use crate::lease::{Endpoint, Goal, Group, Wanted, Work};
use crate::manager::{self, Manager};
use crate::messages::{
    BrokerToClient, BrokerToManager, ClientToBroker, ClientToManager, ManagerToBroker, ManagerToClient,
};
use crate::rules::Rules;
use fpga_board::slots::SlotIndex;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use std::collections::{BTreeMap, BTreeSet};

/// The only manager.
pub(super) const MANAGER: ManagerId = ManagerId(0);
/// Its only slot.
pub(super) const SLOT: SlotIndex = SlotIndex(0);
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
    steps: u64,
    faults: u32,
    rules: Rules,
}

/// What runs in the slot, whatever the manager believes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Board {
    pub(super) tasks: BTreeSet<(LeaseId, StepNumber)>,
    pub(super) load: Option<LeaseId>,
    pub(super) kill: Option<LeaseId>,
    pub(super) probe: bool,
    pub(super) reap: bool,
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
    /// The held lease whose Recall has arrived.
    pub(super) recalled: Option<LeaseId>,
    /// The highest term that the manager has accepted in this life.
    pub(super) max_term: Term,
    /// Each live job's first ticket.
    pub(super) arrivals: BTreeMap<JobUuid, WallTime>,
}

impl World {
    /// All parties have just started, and nothing is connected.
    #[must_use]
    pub fn cold(setup: &Setup) -> Self {
        let mut world = Self {
            now: MOMENT,
            manager: None,
            manager_life: 0,
            board: Board::default(),
            brokers: vec![Broker::new(LIMITS, setup.rules); setup.brokers],
            swaps: vec![None; setup.brokers],
            kubernetes_lease: KubernetesLease { term: Term(0), holder: None },
            clients: vec![Client { job: None, life: 0, delivered: BTreeMap::new() }; setup.clients],
            manager_links: Vec::new(),
            client_links: Vec::new(),
            lease_links: Vec::new(),
            faults_left: setup.faults,
            ghosts: Ghosts::default(),
            setup: HashedSetup { steps: setup.steps, faults: setup.faults, rules: setup.rules },
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
        let config = manager::Config { incarnation, endpoint, slots: 1, longest_step: STEP };
        let (manager, actions) = Manager::new(config, self.setup.rules);
        self.manager = Some(manager);
        self.manager_actions(actions);
    }

    /// A broker's process that has just started.
    pub(super) fn fresh_broker(&self) -> Broker {
        Broker::new(LIMITS, self.setup.rules)
    }

    pub(super) fn start_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let id = JobUuid((index as u128 + 1) * 16 + u128::from(client.life));
        let goal = Goal::Deadline { actions: self.setup.steps, within: Millis::from_secs(60) };
        let group = Group { id: GroupUuid(id.0), goal, least: 0, most: 1 };
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Group(group), bundle: None };
        let mut job = Job::new(id, wanted, Repetition::Allowed, self.setup.rules);
        for step in (0..self.setup.steps).map(StepNumber) {
            job.handle(client::Event::Submit { step, bytes: 1 }, self.now);
        }
        job.handle(client::Event::Finish, self.now);
        client.job = Some(job);
    }

    /// A grant to a job; the lease's id is still to be chosen.
    pub(super) fn grant_of(&self, job: JobUuid) -> Grant {
        let (digest, lease) = (Digest::from_bytes([1; 32]), LeaseId(0));
        // The search stands still: each step's end is told.
        let usage_every = Some(Millis(0));
        Grant { job, manager: MANAGER, slot: SLOT, digest, lease, usage_every }
    }

    /// The present moment of a broker: first arrivals that are asked for after different faults differ.
    pub(super) fn moment(&self) -> Moment {
        Moment { now: self.now, wall: WallTime(u64::from(1 + self.setup.faults - self.faults_left)) }
    }

    /// The lease that the slot has, and the slot's state in a word.
    pub(super) fn slot(&self) -> Option<crate::messages::SlotStatus> {
        self.manager.as_ref().and_then(|manager| manager.slot(SLOT))
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

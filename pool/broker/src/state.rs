//! The broker as a whole, without I/O: the lease protocol, the policy, the catalog, and the tickets.
//!
//! [`State::handle`] takes what happens and returns what is to be sent. One task owns the state, see [`crate::owner`].

mod decisions;
mod explaining;
mod notices;
mod view;

use crate::catalog::Catalog;
use crate::metrics::Metrics;
use crate::policy::{Explanation, Policy, PolicySettings};
use crate::tickets::TicketKey;
use explaining::Explaining;
use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_pool_api::client::{Cancelled, Offer, ToClient, Waits, Want};
use fpga_pool_api::limits::MAX_WAITING_JOBS_OF_CLIENT;
use fpga_pool_api::manager::LentBoard;
use fpga_pool_leases::broker::{Action, Broker, Event, Limits, Role, SwapOutcome};
use fpga_pool_leases::ids::{ConnectionId, JobUuid, LeaseId, ManagerId, Term};
use fpga_pool_leases::messages::{
    BrokerToClient, BrokerToManager, CancelCause, ClientToBroker, ManagerToBroker,
};
use fpga_pool_leases::rules::Rules;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub use view::Viewer;

/// Time between two looks at everything: slots whose bitstreams failed, and the beginnings of rounds of explanations.
const TICK: Millis = Millis::from_secs(1);

/// What happens.
#[derive(Debug)]
pub enum Input {
    /// A manager registers its board.
    Register(ConnectionId, ManagerId, LentBoard, ManagerToBroker),
    /// Another message of a manager.
    Manager(ConnectionId, ManagerId, ManagerToBroker),
    /// A manager's stream has ended.
    ManagerClosed(ConnectionId),
    /// A client wants a lease for a job.
    Want(ConnectionId, Client, Want),
    /// A client cancels a job.
    Cancel(ConnectionId, Client, JobUuid),
    /// A client's stream has ended.
    ClientClosed(ConnectionId),
    /// This broker may lead.
    MayLead {
        /// The term in the Kubernetes Lease.
        term: Term,
    },
    /// The answer to [`Output::SwapTerm`].
    Swapped(SwapOutcome),
    /// Another broker leads, or this one ends.
    LeaseLost,
    /// The accelerators have changed.
    Catalog(Catalog),
}

/// Who a client proved to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Tenant of all its jobs.
    pub tenant: Tenant,
    /// The node on which it runs, if that is known.
    pub home: Option<Arc<str>>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a message to a manager.
    ToManager(ConnectionId, BrokerToManager),
    /// Send a message to a client.
    ToClient(ConnectionId, ToClient),
    /// Close a connection, after the messages before it.
    Close(ConnectionId),
    /// Replace the term in the Kubernetes Lease, if it is the expected one.
    SwapTerm {
        /// The term that the Lease must have.
        expected: Term,
        /// The new term.
        next: Term,
    },
}

/// Settings of a broker.
#[derive(Debug)]
pub struct Settings {
    /// How much the broker keeps.
    pub limits: Limits,
    /// The policy.
    pub policy: PolicySettings,
    /// The key of tickets.
    pub tickets: TicketKey,
}

/// The state of a broker.
pub struct State {
    broker: Broker,
    policy: Policy,
    catalog: Catalog,
    tickets: TicketKey,
    metrics: Metrics,
    boards: BTreeMap<ManagerId, LentBoard>,
    /// The board of the Register that is being handled.
    registering: Option<LentBoard>,
    /// Jobs that the protocol's queue has.
    jobs: BTreeMap<JobUuid, JobOrigin>,
    /// Number of jobs of each client's stream.
    jobs_of: BTreeMap<ConnectionId, usize>,
    /// Leases that are being prepared, by their jobs.
    granted: BTreeMap<JobUuid, Granted>,
    next_tick: MonotonicTime,
    explaining: Explaining,
    new_lease_id: Box<dyn FnMut() -> LeaseId + Send>,
}

/// Where a job comes from.
#[derive(Debug)]
struct JobOrigin {
    connection: ConnectionId,
    home: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy)]
struct Granted {
    slot: crate::policy::SlotId,
    digest: Digest,
    first_arrival: WallTime,
}

impl State {
    /// A broker that stands by. `new_lease_id` returns 128 random bits.
    pub fn new(
        settings: Settings,
        metrics: Metrics,
        new_lease_id: impl FnMut() -> LeaseId + Send + 'static,
    ) -> Self {
        let Settings { limits, policy, tickets } = settings;
        Self {
            broker: Broker::new(limits, Rules::default()),
            policy: Policy::new(policy),
            catalog: Catalog::default(),
            tickets,
            metrics,
            boards: BTreeMap::new(),
            registering: None,
            jobs: BTreeMap::new(),
            jobs_of: BTreeMap::new(),
            granted: BTreeMap::new(),
            next_tick: MonotonicTime::START,
            explaining: Explaining::default(),
            new_lease_id: Box::new(new_lease_id),
        }
    }

    /// Whether the broker grants.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.broker.role(), Role::Active { .. })
    }

    /// Whether the broker takes streams.
    #[must_use]
    pub fn is_in_office(&self) -> bool {
        self.broker.role() != Role::Standby
    }

    /// Takes in what happens.
    pub fn handle(&mut self, input: Input, now: Moment) -> Vec<Output> {
        let mut outputs = Vec::new();
        let event = match input {
            Input::Register(connection, manager, board, message) => {
                self.registering = Some(board);
                Event::Manager(connection, manager, message)
            }
            Input::Manager(connection, manager, message) => Event::Manager(connection, manager, message),
            Input::ManagerClosed(connection) => Event::ManagerClosed(connection),
            Input::Want(connection, client, want) => {
                return self.want(connection, client, want, now);
            }
            Input::Cancel(connection, client, job) => {
                Event::Client(connection, client.tenant, ClientToBroker::Cancel { job })
            }
            Input::ClientClosed(connection) => Event::ClientClosed(connection),
            Input::MayLead { term } => Event::MayLead { term },
            Input::Swapped(outcome) => Event::Swapped(outcome),
            Input::LeaseLost => Event::LeaseLost,
            Input::Catalog(catalog) => {
                self.catalog = catalog;
                if self.is_active() {
                    self.policy.update_jobs(&self.catalog, now);
                }
                self.process(Vec::new(), &mut outputs, now);
                return outputs;
            }
        };
        let actions = self.broker.handle(event, now);
        self.registering.take_if(|_| actions.is_empty());
        self.process(actions, &mut outputs, now);
        outputs
    }

    /// Does what is due at [`Self::next_deadline`].
    pub fn tick(&mut self, now: Moment) -> Vec<Output> {
        let mut outputs = Vec::new();
        let actions = self.broker.tick(now.now);
        self.process(actions, &mut outputs, now);
        if !self.is_active() {
            return outputs;
        }
        if self.policy.next_wake().is_some_and(|at| at <= now.now) {
            self.policy.wake(now);
        }
        if self.next_tick <= now.now {
            self.next_tick = now.now + TICK;
            if self.policy.has_used_up_names() {
                self.begin(now);
            }
            self.policy.wake(now);
            self.follow_all(now);
            self.process(Vec::new(), &mut outputs, now);
            self.explaining.begin(now.now);
            self.update_metrics(now);
        }
        self.process(Vec::new(), &mut outputs, now);
        self.explain(&mut outputs, now.now);
        outputs
    }

    /// The next moment at which [`Self::tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicTime> {
        let of_policy = if self.is_active() {
            let of_looks = self.explaining.next_deadline().into_iter().chain([self.next_tick]);
            self.policy.next_wake().into_iter().chain(of_looks).min()
        } else {
            None
        };
        self.broker.next_deadline().into_iter().chain(of_policy).min()
    }

    fn want(&mut self, connection: ConnectionId, client: Client, want: Want, now: Moment) -> Vec<Output> {
        let mut outputs = Vec::new();
        let Want { job, wanted, ticket, attempt } = want;
        let Client { tenant, home } = client;
        let is_new = self.jobs.get(&job).is_none_or(|origin| origin.connection != connection);
        if is_new && self.jobs_of.get(&connection).is_some_and(|jobs| *jobs >= MAX_WAITING_JOBS_OF_CLIENT) {
            let message = format!(
                "{MAX_WAITING_JOBS_OF_CLIENT} jobs of this process wait already: wait until one of them has a slot"
            );
            let cancelled = Cancelled { job, why: CancelCause::Full, message };
            return vec![Output::ToClient(connection, ToClient::Cancelled(cancelled))];
        }
        let is_shown = ticket.is_some();
        let ticket = ticket.and_then(|sealed| self.tickets.open(&sealed, &tenant));
        if is_shown && ticket.is_none() {
            self.metrics.refused_ticket();
        }
        let message = ClientToBroker::Want { job, wanted, ticket, attempt };
        let actions = self.broker.handle(Event::Client(connection, tenant.clone(), message), now);
        // The job is not the client's own if another tenant has it, or if a later stream of the client has it.
        let known = self.broker.job(job);
        if known.is_some_and(|known| *known.tenant == tenant && known.connection == Some(connection)) {
            self.forget_origin(job);
            *self.jobs_of.entry(connection).or_default() += 1;
            self.jobs.insert(job, JobOrigin { connection, home });
        }
        self.process(actions, &mut outputs, now);
        outputs.extend(self.first_reason(job, connection));
        outputs
    }

    /// Why a job waits that has just asked, unless it has been granted a slot.
    fn first_reason(&mut self, job: JobUuid, connection: ConnectionId) -> Option<Output> {
        self.broker.job(job).filter(|job| job.connection == Some(connection))?;
        let Explanation { ahead, reason } = match self.broker.role() {
            Role::Active { .. } => self.policy.first_explanation(job)?,
            _ => Explanation {
                ahead: 0,
                reason: "the broker has just begun, and learns what boards lend".to_owned(),
            },
        };
        Some(Output::ToClient(connection, ToClient::Waits(Waits { job, ahead, reason })))
    }

    fn forget_origin(&mut self, job: JobUuid) {
        let Some(JobOrigin { connection, .. }) = self.jobs.remove(&job) else { return };
        if let Some(jobs) = self.jobs_of.get_mut(&connection) {
            *jobs -= 1;
            if *jobs == 0 {
                self.jobs_of.remove(&connection);
            }
        }
    }

    /// Carries out the protocol's actions, what the policy decides about them, and what follows.
    fn process(&mut self, actions: Vec<Action>, outputs: &mut Vec<Output>, now: Moment) {
        let mut todo = VecDeque::from(actions);
        loop {
            while let Some(action) = todo.pop_front() {
                match action {
                    Action::SwapTerm { expected, next } => outputs.push(Output::SwapTerm { expected, next }),
                    Action::ToManager(connection, message) => {
                        outputs.push(Output::ToManager(connection, message));
                    }
                    Action::ToClient(connection, message) => {
                        outputs.extend(self.to_client(connection, message, now));
                    }
                    Action::Close(connection) => outputs.push(Output::Close(connection)),
                    Action::Notice(notice) => self.notice(&notice, now),
                }
                self.carry_out_decisions(&mut todo, outputs, now);
            }
            if self.is_active() {
                if self.policy.is_outdated() {
                    self.policy.update_jobs(&self.catalog, now);
                }
                self.policy.recall_for_others();
            }
            self.carry_out_decisions(&mut todo, outputs, now);
            if todo.is_empty() {
                break;
            }
        }
    }

    /// A message as it goes to a client; `None` if what it tells is over.
    fn to_client(&self, connection: ConnectionId, message: BrokerToClient, now: Moment) -> Option<Output> {
        let message = match message {
            BrokerToClient::Ticket(ticket) => {
                let job = self.broker.job(ticket.job)?;
                let interface = self.catalog.interface(job.tenant.as_str(), &job.wanted.accelerator);
                ToClient::Ticket(self.tickets.seal(ticket, job.tenant), interface)
            }
            BrokerToClient::Offer { job, lease, endpoint } => {
                // The protocol's queue has the job no longer.
                let Granted { slot, digest, first_arrival } = *self.granted.get(&job)?;
                let node = Arc::clone(&self.boards.get(&slot.manager)?.board.node);
                self.metrics.offered(now.wall - first_arrival);
                ToClient::Offer(Offer { job, lease, endpoint, node, digest })
            }
            BrokerToClient::Cancel { job, why } => {
                self.metrics.cancelled(why);
                ToClient::Cancelled(Cancelled { job, why, message: why.to_string() })
            }
        };
        Some(Output::ToClient(connection, message))
    }
}

#[cfg(test)]
mod tests;

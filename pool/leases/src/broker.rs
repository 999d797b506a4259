//! The broker's side: it asks managers for leases and offers the leases to clients.
//!
//! ```text
//!             MayLead              swapped             2 s
//!   Standby ───────────► Swapping ─────────► Settling ─────► Active
//!      ▲  swap failed, Lease lost │             │               │
//!      └──────────────────────────┴─────────────┴───────────────┘
//! ```
//! A broker in office that hears of a later term from a manager swaps its own for one that is later still.
//!
//! Jobs of a bundle are offered their leases together, when all of them are prepared.
//!
//! A job is the broker's from its Want to its Offer. After the Offer the client has the lease, or sends another Want with
//! its ticket. So the broker keeps nothing that managers and clients can't tell it again, and needs no database.
//!
//! Two brokers may be active for a while. Neither can break I1: the manager decides.

mod answers;
mod bundles;
mod decisions;
mod event;
mod queue;
mod registry;
mod term;

use crate::ids::{ConnectionId, JobUuid, LeaseId, ManagerId, Term};
use crate::lease::Ticket;
use crate::messages::{BrokerToClient, CancelCause, ClientToBroker, ManagerToBroker};
use crate::rules::{Rule, Rules};
use crate::timing;
use fpga_board::slots::SlotIndex;
use fpga_core::units::{Moment, MonotonicTime, WallTime};
use queue::{Asked, Queue};
use registry::Managers;

pub use event::{Action, Event, Grant, GrantError, LeaseStage, Notice, SlotRecord, SwapOutcome, WaitingJob};

/// How much a broker keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Number of waiting jobs.
    pub jobs: usize,
    /// Number of managers.
    pub managers: usize,
    /// Number of slots of a manager.
    pub slots_per_manager: usize,
}

/// A timer of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The broker has listened long enough.
    Settled,
    /// A job's client has not come back.
    Lost(JobUuid),
    /// A manager has not answered the Prepare of a lease.
    Unanswered(LeaseId),
    /// Only with [`Rule::TakenUntilReported`] off: a slot counts as free after a while.
    #[cfg(feature = "exploration")]
    Forget(ManagerId, SlotIndex),
}

/// The lease protocol of a broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Broker {
    limits: Limits,
    role: Role,
    /// The term that is being written to the Kubernetes Lease; never one on standby.
    swapping: Option<Term>,
    /// The highest term that this broker has had or heard of.
    heard: Term,
    managers: Managers,
    queue: Queue,
    rules: Rules,
}

/// A broker's part among the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Another broker is active.
    Standby,
    /// The broker's first term is being written to the Kubernetes Lease.
    Swapping,
    /// The broker listens until `until` and grants nothing.
    Settling {
        /// The broker's term.
        term: Term,
        /// End of the time.
        until: MonotonicTime,
    },
    /// The broker grants.
    Active {
        /// The broker's term.
        term: Term,
    },
}

impl Broker {
    /// A broker that stands by.
    #[must_use]
    pub fn new(limits: Limits, rules: Rules) -> Self {
        let (managers, queue) = (Managers::default(), Queue::default());
        let (role, heard) = (Role::Standby, Term::default());
        Self { limits, role, swapping: None, heard, managers, queue, rules }
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::MayLead { term } => {
                if self.role == Role::Standby {
                    self.run_for_office(term, &mut actions);
                }
            }
            Event::Swapped(outcome) => self.swapped(outcome, now.now, &mut actions),
            Event::LeaseLost => self.step_down(&mut actions),
            Event::Manager(connection, ..) | Event::Client(connection, ..) if self.role == Role::Standby => {
                actions.push(Action::Close(connection));
            }
            Event::Manager(connection, id, message) => {
                self.manager(connection, id, message, now.now, &mut actions);
            }
            Event::ManagerClosed(connection) => self.lose_manager(connection, &mut actions),
            Event::Client(connection, tenant, ClientToBroker::Want { job, wanted, ticket, attempt }) => {
                let ticket = ticket.filter(|ticket| ticket.job == job).map(|ticket| ticket.first_arrival);
                let asked = Asked { job, tenant, wanted, ticket, attempt };
                self.want(connection, asked, now.wall, &mut actions);
            }
            Event::Client(_, tenant, ClientToBroker::Cancel { job }) => {
                if self.queue.get(job).is_some_and(|known| known.tenant == tenant) {
                    self.remove(job, &mut actions);
                }
            }
            Event::ClientClosed(connection) => self.queue.detach(connection, now.now + timing::LOST),
        }
        actions
    }

    /// Lets all timers fire that are due.
    pub fn tick(&mut self, now: MonotonicTime) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(timer) = self.next_timer().filter(|(_, at)| *at <= now).map(|(timer, _)| timer) {
            self.fire_into(timer, &mut actions);
        }
        actions
    }

    /// The moment of the next timer.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicTime> {
        self.next_timer().map(|(_, at)| at)
    }

    /// Lets one timer fire, also before its moment: as if this broker's clock were fast.
    #[cfg(feature = "exploration")]
    pub fn fire(&mut self, timer: Timer) -> Vec<Action> {
        let mut actions = Vec::new();
        self.fire_into(timer, &mut actions);
        actions
    }

    /// The armed timers.
    #[cfg(feature = "exploration")]
    #[must_use]
    pub fn timers(&self) -> Vec<Timer> {
        let settled = matches!(self.role, Role::Settling { .. }).then_some(Timer::Settled);
        let lost = self.queue.detached().map(|(_, job)| Timer::Lost(job));
        let unanswered = self.managers.answers().map(|(_, lease)| Timer::Unanswered(lease));
        let mut timers: Vec<Timer> = settled.into_iter().chain(lost).chain(unanswered).collect();
        if !self.rules.hold(Rule::TakenUntilReported) {
            for (id, record) in self.managers.iter() {
                let taken = (0..).map(SlotIndex).zip(&record.slots);
                let taken = taken.filter(|(_, slot)| !matches!(slot, SlotRecord::Free | SlotRecord::Bad));
                timers.extend(taken.map(|(slot, _)| Timer::Forget(id, slot)));
            }
        }
        timers
    }

    /// The jobs that wait for a lease, by id.
    pub fn jobs(&self) -> impl Iterator<Item = WaitingJob<'_>> {
        self.queue.iter()
    }

    /// A job that waits for a lease.
    #[must_use]
    pub fn job(&self, id: JobUuid) -> Option<WaitingJob<'_>> {
        self.queue.waiting(id)
    }

    /// A slot of a registered manager.
    #[must_use]
    pub fn slot(&self, manager: ManagerId, slot: SlotIndex) -> Option<&SlotRecord> {
        self.managers.get(manager)?.slots.get(slot.0 as usize)
    }

    /// The registered managers' slots.
    pub fn slots(&self) -> impl Iterator<Item = (ManagerId, SlotIndex, &SlotRecord)> {
        self.managers.iter().flat_map(|(id, record)| {
            (0..).map(SlotIndex).zip(&record.slots).map(move |(index, slot)| (id, index, slot))
        })
    }

    /// The present connection of a manager.
    #[must_use]
    pub fn connection_of(&self, manager: ManagerId) -> Option<ConnectionId> {
        self.managers.current(manager)
    }

    /// The broker's role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Expects report 0 next on a connection; returns the number that was expected.
    #[cfg(feature = "exploration")]
    pub fn renumber_reports(&mut self, connection: ConnectionId) -> u64 {
        self.managers.renumber_reports(connection)
    }

    fn manager(
        &mut self,
        connection: ConnectionId,
        id: ManagerId,
        message: ManagerToBroker,
        now: MonotonicTime,
        actions: &mut Vec<Action>,
    ) {
        match message {
            ManagerToBroker::Register { incarnation, max_term, endpoint, slots } => {
                let is_known = self.managers.get(id).is_some();
                let is_full = self.managers.len() >= self.limits.managers && !is_known;
                if is_full || slots.len() > self.limits.slots_per_manager {
                    actions.push(Action::Close(connection));
                    return;
                }
                if let Some(former) = self.managers.current(id)
                    && self.rules.hold(Rule::CurrentConnectionOnly)
                {
                    self.lose_manager(former, actions);
                    actions.push(Action::Close(former));
                    if former == connection {
                        return;
                    }
                }
                self.managers.register(id, connection, incarnation, endpoint, slots);
                actions.push(Action::Notice(Notice::Registered(id)));
                self.hear(max_term, actions);
            }
            ManagerToBroker::Slot(report) => self.report(connection, report, actions),
            ManagerToBroker::Prepared { lease } => self.prepared(connection, lease, actions),
            ManagerToBroker::Refused { lease, why } => self.refused(connection, lease, why, now, actions),
        }
    }

    fn want(&mut self, connection: ConnectionId, asked: Asked, now: WallTime, actions: &mut Vec<Action>) {
        let job = asked.job;
        let cause = match self.queue.get(job) {
            Some(known) if known.tenant != asked.tenant => Some(CancelCause::Foreign),
            None if self.queue.len() >= self.limits.jobs => Some(CancelCause::Full),
            _ => None,
        };
        if let Some(why) = cause {
            actions.push(Action::ToClient(connection, BrokerToClient::Cancel { job, why }));
            return;
        }
        let is_late = self.queue.get(job).is_some_and(|known| known.attempt > asked.attempt);
        if is_late && self.rules.hold(Rule::LaterAttemptsWin) {
            return;
        }
        self.leave_former_bundle(&asked, actions);
        let first_arrival = self.queue.want(asked, connection, now);
        let ticket = Ticket { job, first_arrival };
        actions.push(Action::ToClient(connection, BrokerToClient::Ticket(ticket)));
        actions.push(Action::Notice(Notice::Waiting(job)));
    }

    fn next_timer(&self) -> Option<(Timer, MonotonicTime)> {
        let settled = match self.role {
            Role::Settling { until, .. } => Some((Timer::Settled, until)),
            _ => None,
        };
        let lost = self.queue.detached().next().map(|(at, job)| (Timer::Lost(job), at));
        let unanswered = self.managers.answers().next().map(|(at, lease)| (Timer::Unanswered(lease), at));
        settled.into_iter().chain(lost).chain(unanswered).min_by_key(|(_, at)| *at)
    }

    fn fire_into(&mut self, timer: Timer, actions: &mut Vec<Action>) {
        match timer {
            Timer::Settled => {
                if let Role::Settling { term, .. } = self.role {
                    self.role = Role::Active { term };
                    actions.push(Action::Notice(Notice::Active));
                }
            }
            Timer::Lost(job) => self.remove(job, actions),
            Timer::Unanswered(lease) => {
                if let Some(connection) = self.managers.give_up(lease) {
                    self.lose_manager(connection, actions);
                    actions.push(Action::Close(connection));
                }
            }
            #[cfg(feature = "exploration")]
            Timer::Forget(manager, slot) => self.managers.set(manager, slot, SlotRecord::Free),
        }
    }
}

#[cfg(test)]
mod tests;

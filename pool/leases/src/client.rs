//! The client's side: one job, from its first Want to its end.
//!
//! ```text
//!            Offer             Attached              all steps acknowledged
//!   Waiting ───────► Offered ──────────► Running ────────────────────────► Done
//!      ▲  Gone, closed, silent │            │ Yield: the steps under way end, then Release
//!      └───────────────────────┴────────────┘ closed, silent: at once          (Cancelled, Failed)
//! ```
//!
//! A step is kept until its output is there. A job that loses its lease wants another one under the same id and ticket,
//! for the steps that it keeps; what a former lease still yields is dropped, so that no step's output comes twice. A group
//! is as many jobs as it may have slots.
//!
//! A job that runs by itself names its bytes. When they are done and it loses its slot, what is still to be done is as
//! good as another job: the next Want names those bytes, and shows no ticket.

mod event;

use crate::ids::{Attempt, ConnectionId, JobUuid, LeaseId, StepNumber};
use crate::lease::{Bundle, Ticket, Wanted, Work};
use crate::messages::{BrokerToClient, ClientToBroker, ClientToManager, ManagerToClient};
use crate::rules::{Rule, Rules};
use crate::timing;
use fpga_core::units::MonotonicTime;
use std::collections::{BTreeMap, BTreeSet};

pub use event::{Action, End, Event, Repetition};

/// Number of steps that are sent ahead: while one computes, the next one's data moves.
const STEPS_AHEAD: usize = 2;

/// The lease protocol of one job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    id: JobUuid,
    wanted: Wanted,
    repetition: Repetition,
    ticket: Option<Ticket>,
    broker: Option<ConnectionId>,
    attempt: Attempt,
    phase: Phase,
    /// Steps that are not acknowledged, and the bytes of each.
    kept: BTreeMap<StepNumber, u64>,
    /// Those of them that were sent under the present lease.
    sent: BTreeSet<StepNumber>,
    is_finished: bool,
    /// Whether a step that took bytes has been done.
    has_used_bytes: bool,
    /// Whether the broker was last asked for a slot with a bundle that the job has left.
    has_asked_in_bundle: bool,
    rules: Rules,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The job has no lease.
    Waiting,
    /// The job has an offer, and attaches to its slot.
    Offered {
        /// The lease.
        lease: LeaseId,
        /// When the manager counts as dead, if it has not answered.
        silent_at: MonotonicTime,
    },
    /// The job has a slot.
    Running {
        /// The lease.
        lease: LeaseId,
        /// When the manager counts as dead.
        silent_at: MonotonicTime,
        /// Whether it gives the slot up when the steps under way have ended.
        yielding: bool,
    },
    /// The job has ended.
    Ended(End),
}

impl Job {
    /// A job without steps, and without a connection to a broker.
    #[must_use]
    pub fn new(id: JobUuid, wanted: Wanted, repetition: Repetition, rules: Rules) -> Self {
        Self {
            id,
            wanted,
            repetition,
            ticket: None,
            broker: None,
            attempt: Attempt::default(),
            phase: Phase::Waiting,
            kept: BTreeMap::new(),
            sent: BTreeSet::new(),
            is_finished: false,
            has_used_bytes: false,
            has_asked_in_bundle: false,
            rules,
        }
    }

    /// Says whether steps may run again, which a client may learn only from the broker's first answer.
    pub fn set_repetition(&mut self, repetition: Repetition) {
        self.repetition = repetition;
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: Event, now: MonotonicTime) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Submit { step, bytes } => {
                self.kept.insert(step, bytes);
                self.send(&mut actions);
            }
            Event::Finish => {
                self.is_finished = true;
                self.end_if_done(&mut actions);
            }
            Event::Cancel => self.end(End::Cancelled, &mut actions),
            Event::BrokerConnected(connection) => {
                self.broker = Some(connection);
                self.attempt = self.attempt.next();
                self.want(&mut actions);
            }
            Event::BrokerClosed(connection) => {
                if self.broker == Some(connection) {
                    self.broker = None;
                }
            }
            Event::Broker(connection, message) => {
                if self.broker == Some(connection) {
                    self.broker(message, now, &mut actions);
                }
            }
            Event::Manager(lease, message) => self.manager(lease, &message, now, &mut actions),
            Event::ManagerAlive(lease) => self.manager_alive(lease, now),
            Event::ManagerClosed(lease) => {
                if self.lease() == Some(lease) {
                    self.lose_lease(&mut actions);
                }
            }
        }
        actions
    }

    /// Lets the timer fire if it is due: the manager is silent.
    pub fn tick(&mut self, now: MonotonicTime) -> Vec<Action> {
        if self.next_deadline().is_some_and(|at| at <= now) { self.fire_into() } else { Vec::new() }
    }

    /// The moment of the timer.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicTime> {
        match self.phase {
            Phase::Offered { silent_at, .. } | Phase::Running { silent_at, .. } => Some(silent_at),
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// Lets the timer fire, also before its moment: as if this client's clock were fast.
    #[cfg(feature = "exploration")]
    pub fn fire(&mut self) -> Vec<Action> {
        self.fire_into()
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> JobUuid {
        self.id
    }

    /// How far the job is.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The broker's word for the first arrival.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// The connection to the broker.
    #[must_use]
    pub fn broker_connection(&self) -> Option<ConnectionId> {
        self.broker
    }

    /// The lease that the job attaches to or has.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        match self.phase {
            Phase::Offered { lease, .. } | Phase::Running { lease, .. } => Some(lease),
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// The bundle of the job, until the bundle is granted.
    #[must_use]
    pub fn bundle(&self) -> Option<Bundle> {
        self.wanted.bundle
    }

    /// The job's bundle was granted: another job of the bundle has its Offer. Should this job's own Offer be lost, the job
    /// waits by itself, for the others do not wait any more: see [`Self::ask_by_itself`].
    pub fn leave_bundle(&mut self) {
        self.has_asked_in_bundle |= self.wanted.bundle.take().is_some();
    }

    /// Asks again if the job has left its bundle, and its own Offer has not come with those of the others. The owner calls
    /// it about once a second.
    pub fn ask_by_itself(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if std::mem::take(&mut self.has_asked_in_bundle) {
            self.want(&mut actions);
        }
        actions
    }

    /// Number of further steps that would be sent at once, if they were submitted now.
    #[must_use]
    pub fn room(&self) -> usize {
        match self.phase {
            Phase::Running { yielding: false, .. } => STEPS_AHEAD.saturating_sub(self.kept.len()),
            _ => 0,
        }
    }

    /// Takes back the steps that are not under way, in order: another job of the same group may run them. A result of a
    /// former lease is not delivered any more.
    pub fn withdraw(&mut self) -> Vec<StepNumber> {
        let back: Vec<StepNumber> =
            self.kept.keys().filter(|step| !self.sent.contains(step)).copied().collect();
        self.kept.retain(|step, _| self.sent.contains(step));
        back
    }

    fn broker(&mut self, message: BrokerToClient, now: MonotonicTime, actions: &mut Vec<Action>) {
        match message {
            BrokerToClient::Ticket(ticket) => {
                if ticket.job == self.id && self.ticket.is_none() {
                    self.ticket = Some(ticket);
                }
            }
            BrokerToClient::Offer { job, lease, endpoint } => {
                if self.lease() == Some(lease) {
                    return;
                }
                if job == self.id && self.phase == Phase::Waiting {
                    self.leave_bundle();
                    self.has_asked_in_bundle = false;
                    self.phase = Phase::Offered { lease, silent_at: now + timing::SILENT };
                    actions.push(Action::Attach { lease, endpoint });
                } else {
                    actions.push(Action::Decline { lease, endpoint });
                }
            }
            BrokerToClient::Cancel { job, why } => {
                if job == self.id && self.phase == Phase::Waiting {
                    self.end(End::Refused(why), actions);
                }
            }
        }
    }

    fn manager(
        &mut self,
        lease: LeaseId,
        message: &ManagerToClient,
        now: MonotonicTime,
        actions: &mut Vec<Action>,
    ) {
        if self.lease() != Some(lease) {
            if let ManagerToClient::StepDone { step, .. } = *message
                && !self.rules.hold(Rule::FormerResultsAreDropped)
            {
                actions.push(Action::Deliver(step));
            }
            return;
        }
        self.manager_alive(lease, now);
        match *message {
            ManagerToClient::Attached { .. } => {
                if let Phase::Offered { lease, .. } = self.phase {
                    let silent_at = now + timing::SILENT;
                    self.phase = Phase::Running { lease, silent_at, yielding: false };
                    self.send(actions);
                    self.end_if_done(actions);
                }
            }
            ManagerToClient::Gone { .. } => self.lose_lease(actions),
            ManagerToClient::Yield { .. } => {
                if let Phase::Running { yielding, .. } = &mut self.phase {
                    *yielding = true;
                    self.give_up_if_idle(actions);
                }
            }
            ManagerToClient::StepDone { step, .. } => {
                // Only what was sent under this lease can have ended under it.
                if self.sent.remove(&step)
                    && let Some(done) = self.kept.remove(&step)
                {
                    if let Work::Run { bytes } = &mut self.wanted.work {
                        *bytes = bytes.saturating_sub(done);
                        self.has_used_bytes |= done > 0;
                    }
                    actions.push(Action::Deliver(step));
                }
                self.send(actions);
                self.end_if_done(actions);
                self.give_up_if_idle(actions);
            }
            ManagerToClient::StepRefused { step, .. } => {
                // The step has not run, and waits for the next lease.
                if self.sent.remove(&step)
                    && let Phase::Running { yielding, .. } = &mut self.phase
                {
                    *yielding = true;
                }
                self.give_up_if_idle(actions);
            }
        }
    }

    fn manager_alive(&mut self, of: LeaseId, now: MonotonicTime) {
        // An Attach is answered at once: pings without the answer are no life.
        if let Phase::Running { lease, silent_at, .. } = &mut self.phase
            && *lease == of
        {
            *silent_at = now + timing::SILENT;
        }
    }

    /// Sends steps ahead, if the job has a slot and keeps it.
    fn send(&mut self, actions: &mut Vec<Action>) {
        let Phase::Running { lease, yielding: false, .. } = self.phase else { return };
        while self.sent.len() < STEPS_AHEAD {
            let next = self.kept.keys().find(|step| !self.sent.contains(step)).copied();
            let Some(step) = next else { break };
            self.sent.insert(step);
            actions.push(Action::ToManager(lease, ClientToManager::Step { lease, step }));
        }
    }

    fn give_up_if_idle(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Running { yielding: true, .. }) && self.sent.is_empty() {
            self.release(actions);
            self.phase = Phase::Waiting;
            self.want(actions);
        }
    }

    /// Loses the lease without a word of the manager on the steps under way.
    fn lose_lease(&mut self, actions: &mut Vec<Action>) {
        actions.extend(self.lease().map(Action::CloseManager));
        let under_way = self.sent.first().copied();
        self.sent.clear();
        match under_way {
            Some(step) if self.repetition == Repetition::Forbidden => {
                self.phase = Phase::Ended(End::Lost(step));
                actions.push(Action::Ended(End::Lost(step)));
            }
            _ => {
                self.phase = Phase::Waiting;
                if self.rules.hold(Rule::LostLeaseIsWantedAgain) {
                    self.want(actions);
                }
            }
        }
    }

    fn end_if_done(&mut self, actions: &mut Vec<Action>) {
        if self.is_finished && self.kept.is_empty() {
            self.end(End::Done, actions);
        }
    }

    fn end(&mut self, end: End, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Ended(_) => return,
            Phase::Waiting if self.broker.is_some() => {
                actions.push(Action::ToBroker(ClientToBroker::Cancel { job: self.id }));
            }
            Phase::Waiting => {}
            Phase::Offered { .. } | Phase::Running { .. } => self.release(actions),
        }
        self.phase = Phase::Ended(end);
        actions.push(Action::Ended(end));
    }

    fn release(&mut self, actions: &mut Vec<Action>) {
        if let Some(lease) = self.lease() {
            actions.push(Action::ToManager(lease, ClientToManager::Release { lease }));
            actions.push(Action::CloseManager(lease));
        }
        self.sent.clear();
    }

    /// Asks for a lease, if the job waits for one and the broker is there.
    fn want(&mut self, actions: &mut Vec<Action>) {
        if self.phase == Phase::Waiting && self.broker.is_some() {
            self.has_asked_in_bundle = false;
            self.arrive_anew_if_used_up();
            let ticket = self.ticket.filter(|_| self.rules.hold(Rule::WantsCarryTheTicket));
            let wanted = self.wanted.clone();
            let want = ClientToBroker::Want { job: self.id, wanted, ticket, attempt: self.attempt };
            actions.push(Action::ToBroker(want));
        }
    }

    /// Names the bytes beyond those that the job has asked for, which are done, and drops the ticket: they arrive now.
    fn arrive_anew_if_used_up(&mut self) {
        let beyond = self.kept.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        if let Work::Run { bytes: left @ 0 } = &mut self.wanted.work
            && (beyond > 0 || self.has_used_bytes)
        {
            // A job of which no step waits asks for the least that there is.
            *left = beyond.max(1);
            self.ticket = None;
        }
    }

    fn fire_into(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.lease().is_some() {
            self.lose_lease(&mut actions);
        }
        actions
    }
}

#[cfg(test)]
mod tests;

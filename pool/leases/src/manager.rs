//! The manager's side: the authority on its slots.
//!
//! ```text
//!          Prepare            Attach              release, close, silence, overdue
//!   Free ───────────► Reserved ──────► Held ─────────────────────► Draining ──► Free
//!    ▲  ◄──────────── │    load 30 s    │ Recall: Yield              │  last task ended, or
//!    │   attach 2 s,  │                 ▼ step + 1 s                 │  killed and reaped
//!    │   Recall       ▼                                              ▼  neither in 30 s
//!    └── probe ───── Bad ◄───────────────────────────────────────── Bad
//! ```
//!
//! The manager serves one broker at a time. What comes on another connection than the present one is ignored. A lease
//! needs no broker to live or to end.

mod event;
mod load_health;
mod slot;

use crate::ids::{ConnectionId, Incarnation, LeaseId, Term};
use crate::lease::{Endpoint, Lease};
use crate::messages::{
    BrokerToManager, ClientToManager, ManagerToBroker, ManagerToClient, Refusal, SlotCause, SlotReport,
    SlotStatus,
};
use crate::rules::{Rule, Rules};
use crate::timing;
use fpga_board::slots::SlotIndex;
use fpga_core::units::{Millis, MonotonicTime};
use slot::{Effect, Slot};

pub use event::{Action, Event, LoadOutcome, Outcome};
pub use slot::SlotTimer;

/// What a manager is started with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// Id of this life of the process, never used before.
    pub incarnation: Incarnation,
    /// Where clients find the manager.
    pub endpoint: Endpoint,
    /// Number of lent slots.
    pub slots: u32,
    /// The longest time that a step takes. A client has so long, and a second, to follow a Yield.
    pub longest_step: Millis,
}

/// A timer of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A timer of a slot.
    Slot(SlotIndex, SlotTimer),
    /// Without a broker: groups yield.
    Orphans,
}

/// The lease protocol of one manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Manager {
    config: Config,
    /// The highest term that was accepted in this life.
    max_term: Term,
    phase: Phase,
    link: BrokerLink,
    slots: Vec<Slot>,
    rules: Rules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Processes of the former life may still run tasks.
    Reaping,
    Serving,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BrokerLink {
    Open {
        connection: ConnectionId,
        next_seq: u64,
    },
    /// `None`: no slot is lent yet, or the groups have yielded.
    Lost {
        orphans_yield_at: Option<MonotonicTime>,
    },
}

impl Manager {
    /// A manager that has just started, and its first actions.
    #[must_use]
    pub fn new(config: Config, rules: Rules) -> (Self, Vec<Action>) {
        let slots = (0..config.slots).map(|_| Slot::new(rules)).collect();
        let link = BrokerLink::Lost { orphans_yield_at: None };
        let phase = if rules.hold(Rule::ReapBeforeRegister) { Phase::Reaping } else { Phase::Serving };
        let manager = Self { config, max_term: Term::default(), phase, link, slots, rules };
        (manager, vec![Action::ReapChildren])
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: Event, now: MonotonicTime) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::ChildrenReaped => {
                if self.phase == Phase::Reaping {
                    self.phase = Phase::Serving;
                    self.register(&mut actions);
                }
            }
            Event::BrokerConnected(connection) => {
                self.link = BrokerLink::Open { connection, next_seq: 0 };
                self.register(&mut actions);
            }
            Event::BrokerClosed(connection) => {
                if self.is_current(connection) {
                    self.link = BrokerLink::Lost { orphans_yield_at: Some(now + timing::ORPHAN) };
                }
            }
            Event::Broker(connection, message) => {
                if self.is_current(connection) && self.phase == Phase::Serving {
                    self.broker(message, now, &mut actions);
                }
            }
            Event::Client(connection, message) => self.client(connection, &message, now, &mut actions),
            Event::ClientAlive(connection) => {
                self.slots.iter_mut().for_each(|slot| slot.client_alive(connection, now));
            }
            Event::ClientClosed(connection) => {
                self.each_slot(&mut actions, |slot, effects| slot.client_closed(connection, now, effects));
            }
            Event::Loaded { slot, lease, outcome } => {
                self.on_slot(slot, &mut actions, |slot, effects| slot.loaded(lease, outcome, now, effects));
            }
            Event::StepEnded { slot, lease, step, usage } => {
                self.on_slot(slot, &mut actions, |slot, effects| {
                    slot.step_ended(lease, step, usage, now, effects);
                });
            }
            Event::Killed { slot, lease, outcome } => {
                self.on_slot(slot, &mut actions, |slot, effects| slot.killed(lease, outcome, now, effects));
            }
            Event::Probed { slot, outcome } => {
                self.on_slot(slot, &mut actions, |slot, effects| slot.probed(outcome, now, effects));
            }
        }
        actions
    }

    /// Lets all timers fire that are due.
    pub fn tick(&mut self, now: MonotonicTime) -> Vec<Action> {
        let mut actions = Vec::new();
        for (timer, at) in self.timers() {
            if at <= now {
                self.fire_into(timer, now, &mut actions);
            }
        }
        actions
    }

    /// The moment of the next timer.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicTime> {
        self.timers().into_iter().map(|(_, at)| at).min()
    }

    /// The armed timers and their moments.
    #[must_use]
    pub fn timers(&self) -> Vec<(Timer, MonotonicTime)> {
        let of_slot = |(index, slot): (u32, &Slot)| {
            let timers = slot.timers().into_iter();
            timers.map(move |(timer, at)| (Timer::Slot(SlotIndex(index), timer), at)).collect::<Vec<_>>()
        };
        let mut timers: Vec<_> = (0..).zip(&self.slots).flat_map(of_slot).collect();
        if let BrokerLink::Lost { orphans_yield_at: Some(at) } = self.link {
            timers.push((Timer::Orphans, at));
        }
        timers
    }

    /// Lets one timer fire, also before its moment: as if this manager's clock were fast.
    #[cfg(feature = "exploration")]
    pub fn fire(&mut self, timer: Timer, now: MonotonicTime) -> Vec<Action> {
        let mut actions = Vec::new();
        self.fire_into(timer, now, &mut actions);
        actions
    }

    /// The state of a slot.
    #[must_use]
    pub fn slot(&self, slot: SlotIndex) -> Option<SlotStatus> {
        self.slots.get(slot.0 as usize).map(Slot::status)
    }

    /// Whether the bitstream of a slot's lease is being loaded.
    #[must_use]
    pub fn is_loading(&self, slot: SlotIndex) -> bool {
        self.slots.get(slot.0 as usize).is_some_and(Slot::is_loading)
    }

    /// Whether the manager lends its slots: all processes of its former life are reaped.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// The connection to the broker.
    #[must_use]
    pub fn broker_connection(&self) -> Option<ConnectionId> {
        match self.link {
            BrokerLink::Open { connection, .. } => Some(connection),
            BrokerLink::Lost { .. } => None,
        }
    }

    /// The highest term that was accepted in this life.
    #[must_use]
    pub fn max_term(&self) -> Term {
        self.max_term
    }

    /// Forgets the ended leases that `is_named` says nothing names any more: no message can bring them back.
    #[cfg(feature = "exploration")]
    pub fn forget_ended(&mut self, is_named: impl Fn(LeaseId) -> bool) {
        self.slots.iter_mut().for_each(|slot| slot.forget_ended(&is_named));
    }

    /// Sets the number of the next report.
    #[cfg(feature = "exploration")]
    pub fn renumber_reports(&mut self, renumber: impl FnOnce(u64) -> u64) {
        if let BrokerLink::Open { next_seq, .. } = &mut self.link {
            *next_seq = renumber(*next_seq);
        }
    }

    fn is_current(&self, connection: ConnectionId) -> bool {
        self.broker_connection() == Some(connection)
    }

    fn register(&self, actions: &mut Vec<Action>) {
        if self.phase == Phase::Serving && self.broker_connection().is_some() {
            actions.push(Action::ToBroker(ManagerToBroker::Register {
                incarnation: self.config.incarnation,
                max_term: self.max_term,
                endpoint: self.config.endpoint.clone(),
                slots: self.slots.iter().map(Slot::status).collect(),
            }));
        }
    }

    fn broker(&mut self, message: BrokerToManager, now: MonotonicTime, actions: &mut Vec<Action>) {
        match message {
            BrokerToManager::Prepare { term, lease, usage_every } => {
                self.prepare(term, lease, usage_every, now, actions);
            }
            BrokerToManager::Recall { lease } => {
                let longest_step = self.config.longest_step;
                self.each_slot(actions, |slot, effects| slot.recall(lease, longest_step, now, effects));
            }
        }
    }

    fn prepare(
        &mut self,
        term: Term,
        lease: Lease,
        usage_every: Option<Millis>,
        now: MonotonicTime,
        actions: &mut Vec<Action>,
    ) {
        let (id, slot) = (lease.id, lease.slot);
        if self.rules.hold(Rule::LaterTermsWin) && term < self.max_term {
            let why = Refusal::OldTerm { max_term: self.max_term };
            self.refuse(id, slot, why, actions);
            return;
        }
        self.max_term = term;
        if lease.incarnation != self.config.incarnation {
            self.refuse(id, slot, Refusal::OtherIncarnation, actions);
        } else if self.slots.get(slot.0 as usize).is_none() {
            self.refuse(id, slot, Refusal::NoSuchSlot, actions);
        } else {
            self.on_slot(slot, actions, |slot, effects| slot.prepare(lease, usage_every, now, effects));
        }
    }

    fn client(
        &mut self,
        connection: ConnectionId,
        message: &ClientToManager,
        now: MonotonicTime,
        actions: &mut Vec<Action>,
    ) {
        match *message {
            ClientToManager::Attach { lease } => {
                // One connection has one session, and a session has one lease.
                let is_new = !self.slots.iter().any(|slot| slot.is_held_by(connection));
                let mut attached = false;
                if is_new && self.phase == Phase::Serving {
                    self.each_slot(actions, |slot, effects| {
                        attached = attached || slot.attach(lease, connection, now, effects);
                    });
                }
                if !attached {
                    actions.push(Action::ToClient(connection, ManagerToClient::Gone { lease }));
                    actions.push(Action::CloseClient(connection));
                }
            }
            ClientToManager::Step { lease, step } => {
                // No sign of life: a step may have waited since its client was heard last.
                self.each_slot(actions, |slot, effects| slot.step(lease, step, connection, now, effects));
            }
            ClientToManager::Release { lease } => {
                self.each_slot(actions, |slot, effects| slot.release(lease, now, effects));
            }
        }
    }

    fn fire_into(&mut self, timer: Timer, now: MonotonicTime, actions: &mut Vec<Action>) {
        match timer {
            Timer::Slot(index, timer) => {
                self.on_slot(index, actions, |slot, effects| slot.fire(timer, now, effects));
            }
            Timer::Orphans => {
                // A group that attaches later is asked the next time.
                let again = now + timing::ORPHAN;
                self.link = BrokerLink::Lost { orphans_yield_at: Some(again) };
                let longest_step = self.config.longest_step;
                self.each_slot(actions, |slot, effects| slot.yield_group(longest_step, now, effects));
            }
        }
    }

    fn refuse(&mut self, lease: LeaseId, slot: SlotIndex, why: Refusal, actions: &mut Vec<Action>) {
        actions.push(Action::ToBroker(ManagerToBroker::Refused { lease, why }));
        self.on_slot(slot, actions, |_, effects| effects.push(Effect::Report(SlotCause::Unchanged)));
    }

    fn each_slot(&mut self, actions: &mut Vec<Action>, mut act: impl FnMut(&mut Slot, &mut Vec<Effect>)) {
        for index in (0..).map(SlotIndex).take(self.slots.len()) {
            self.on_slot(index, actions, &mut act);
        }
    }

    /// Lets a slot act, and turns what follows into actions.
    fn on_slot(
        &mut self,
        index: SlotIndex,
        actions: &mut Vec<Action>,
        act: impl FnOnce(&mut Slot, &mut Vec<Effect>),
    ) {
        let Some(slot) = self.slots.get_mut(index.0 as usize) else { return };
        let mut effects = Vec::new();
        act(slot, &mut effects);
        for effect in effects {
            actions.extend(self.action(index, effect));
        }
    }

    fn action(&mut self, index: SlotIndex, effect: Effect) -> Option<Action> {
        Some(match effect {
            Effect::Load(lease, digest) => Action::Load { slot: index, lease, digest },
            Effect::Start(lease, step) => Action::Start { slot: index, lease, step },
            Effect::Kill(lease) => Action::Kill { slot: index, lease },
            Effect::Probe => Action::Probe(index),
            Effect::ToClient(connection, message) => Action::ToClient(connection, message),
            Effect::CloseClient(connection) => Action::CloseClient(connection),
            Effect::Prepared(lease) => {
                self.broker_connection()?;
                Action::ToBroker(ManagerToBroker::Prepared { lease })
            }
            Effect::Refused(lease, why) => {
                self.broker_connection()?;
                Action::ToBroker(ManagerToBroker::Refused { lease, why })
            }
            Effect::Report(why) => {
                let slot = self.slots.get(index.0 as usize)?;
                let BrokerLink::Open { next_seq, .. } = &mut self.link else { return None };
                let seq = *next_seq;
                *next_seq += 1;
                let (status, usage) = (slot.status(), slot.usage());
                Action::ToBroker(ManagerToBroker::Slot(SlotReport { seq, slot: index, status, why, usage }))
            }
        })
    }
}

#[cfg(test)]
mod tests;

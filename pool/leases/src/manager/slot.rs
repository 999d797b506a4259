//! One lent slot.

mod ending;
mod meter;

use super::event::LoadOutcome;
use super::load_health::{LoadHealth, Verdict};
use crate::ids::{ConnectionId, LeaseId, StepNumber};
use crate::lease::{Lease, Usage};
use crate::messages::{Activity, ManagerToClient, Refusal, SlotCause, SlotStatus};
use crate::rules::{Rule, Rules};
use crate::timing;
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, MonotonicTime};
use meter::{Due, Meter};

/// Number of steps of a lease that may be under way. A client that sends more breaks the protocol.
const MAX_STEPS: u32 = 1024;

/// A timer of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotTimer {
    /// The client has not attached.
    Attach,
    /// The load has not ended.
    Load,
    /// The client is silent.
    Silent,
    /// No task has run for a while.
    Idle,
    /// The client has not followed a Yield.
    Yield,
    /// The tasks have not ended: kill them.
    Kill,
    /// The killed process is not reaped.
    Reap,
    /// A bad slot is tried again.
    Probe,
}

/// What follows from an event at a slot.
#[derive(Debug)]
pub(super) enum Effect {
    Load(LeaseId, Digest),
    Start(LeaseId, StepNumber),
    Kill(LeaseId),
    Probe,
    ToClient(ConnectionId, ManagerToClient),
    CloseClient(ConnectionId),
    Prepared(LeaseId),
    Refused(LeaseId, Refusal),
    /// Tell the broker the slot's state, as it is when all effects are known.
    Report(SlotCause),
}

/// A lent slot.
///
/// # Ended leases
/// The slot remembers the last lease that ended in it, and no other. That is enough: a broker sends one Prepare for a
/// lease on a connection, and only the connection counts that the manager has now. A Prepare for a lease that has
/// ended is therefore a repetition on one connection, which keeps the order, and a broker sends no other Prepare for
/// the slot before it has the answer to this one. Should a faulty broker bring an older lease back, it is reserved in a
/// free slot like a new one: I1 and I2 don't rest on this memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    state: State,
    health: LoadHealth,
    last_ended: Option<LeaseId>,
    /// What the present or last lease has used.
    meter: Meter,
    rules: Rules,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Free,
    Reserved { lease: Lease, load: Load },
    Held(Holding),
    Draining { lease: Lease, running: u32, end: DrainEnd },
    Bad(Probe),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Load {
    Running { until: MonotonicTime },
    Done { attach_by: MonotonicTime },
}

/// A client has attached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holding {
    lease: Lease,
    connection: ConnectionId,
    silent_at: MonotonicTime,
    idleness: Idleness,
    /// When the slot is taken away; `None` before a Yield.
    yield_by: Option<MonotonicTime>,
    /// Number of steps under way.
    running: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Idleness {
    Busy,
    Idle { tell_at: MonotonicTime },
    Told,
}

/// How a drain ends if its tasks don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DrainEnd {
    Kill { at: MonotonicTime },
    Bad { at: MonotonicTime },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Probe {
    Waits { until: MonotonicTime },
    Runs,
}

impl Slot {
    pub(super) fn new(rules: Rules) -> Self {
        let (health, meter) = (LoadHealth::default(), Meter::default());
        Self { state: State::Free, health, last_ended: None, meter, rules }
    }

    pub(super) fn status(&self) -> SlotStatus {
        match &self.state {
            State::Free => SlotStatus::Free,
            State::Reserved { lease, .. } => SlotStatus::Reserved(lease.clone()),
            State::Held(held) => {
                let activity = if held.idleness == Idleness::Told { Activity::Idle } else { Activity::Busy };
                SlotStatus::Held(held.lease.clone(), activity)
            }
            State::Draining { lease, .. } => SlotStatus::Draining(lease.clone()),
            State::Bad(_) => SlotStatus::Bad,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        self.meter.used()
    }

    pub(super) fn is_loading(&self) -> bool {
        matches!(self.state, State::Reserved { load: Load::Running { .. }, .. })
    }

    pub(super) fn is_held_by(&self, connection: ConnectionId) -> bool {
        matches!(&self.state, State::Held(held) if held.connection == connection)
    }

    #[cfg(feature = "exploration")]
    pub(super) fn forget_ended(&mut self, is_named: impl Fn(LeaseId) -> bool) {
        self.last_ended = self.last_ended.filter(|lease| is_named(*lease));
    }

    pub(super) fn timers(&self) -> Vec<(SlotTimer, MonotonicTime)> {
        match &self.state {
            State::Free | State::Bad(Probe::Runs) => Vec::new(),
            State::Reserved { load: Load::Running { until }, .. } => vec![(SlotTimer::Load, *until)],
            State::Reserved { load: Load::Done { attach_by }, .. } => vec![(SlotTimer::Attach, *attach_by)],
            State::Held(held) => {
                let mut timers = Vec::with_capacity(3);
                if self.rules.hold(Rule::SilenceDrains) {
                    timers.push((SlotTimer::Silent, held.silent_at));
                }
                if let Idleness::Idle { tell_at } = held.idleness {
                    timers.push((SlotTimer::Idle, tell_at));
                }
                if self.rules.hold(Rule::YieldHasADeadline) {
                    timers.extend(held.yield_by.map(|at| (SlotTimer::Yield, at)));
                }
                timers
            }
            State::Draining { end: DrainEnd::Kill { at }, .. } => vec![(SlotTimer::Kill, *at)],
            State::Draining { end: DrainEnd::Bad { at }, .. } => vec![(SlotTimer::Reap, *at)],
            State::Bad(Probe::Waits { until }) => vec![(SlotTimer::Probe, *until)],
        }
    }

    /// Takes a Prepare of the present broker for this life of the manager.
    pub(super) fn prepare(
        &mut self,
        lease: Lease,
        usage_every: Option<Millis>,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        let may_take = match &self.state {
            State::Free => Ok(()),
            State::Reserved { lease: held, load } if held.id == lease.id => {
                // A repetition has the same answer; during the load the answer is still to come.
                if matches!(load, Load::Done { .. }) {
                    effects.push(Effect::Prepared(lease.id));
                }
                return;
            }
            State::Held(held) if held.lease.id == lease.id => {
                effects.push(Effect::Prepared(lease.id));
                return;
            }
            State::Draining { lease: held, .. } if held.id == lease.id => Err(Refusal::Ended),
            State::Held(_) | State::Draining { .. } if !self.rules.hold(Rule::OnlyFreeSlotsAreReserved) => {
                Ok(())
            }
            _ => Err(Refusal::NotFree),
        };
        let is_over = self.last_ended == Some(lease.id);
        let refusal = match may_take {
            Err(why) => Some(why),
            Ok(()) if is_over => Some(Refusal::Ended),
            Ok(()) if self.health.refuses(&lease.digest, now) => Some(Refusal::BadBitstream),
            Ok(()) => None,
        };
        if let Some(why) = refusal {
            effects.extend([Effect::Refused(lease.id, why), Effect::Report(SlotCause::Unchanged)]);
            return;
        }
        effects.push(Effect::Load(lease.id, lease.digest));
        self.meter = Meter::new(lease.work, usage_every, now);
        self.state = State::Reserved { lease, load: Load::Running { until: now + timing::LOAD } };
    }

    pub(super) fn loaded(
        &mut self,
        id: LeaseId,
        outcome: LoadOutcome,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        match &mut self.state {
            State::Reserved { lease, load: load @ Load::Running { .. } } if lease.id == id => {
                let (next, refusal) = match outcome {
                    LoadOutcome::Loaded => {
                        self.health.loaded(&lease.digest);
                        *load = Load::Done { attach_by: now + timing::ATTACH };
                        effects.push(Effect::Prepared(id));
                        return;
                    }
                    LoadOutcome::Failed => match self.health.failed(lease.digest, now) {
                        Verdict::Usable => (State::Free, Refusal::LoadFailed),
                        Verdict::Bad => (bad(now), Refusal::LoadFailed),
                    },
                    // A file that is not there says nothing of the slot.
                    LoadOutcome::NoFile => (State::Free, Refusal::NoFile),
                };
                self.last_ended = Some(id);
                self.state = next;
                effects.push(Effect::Refused(id, refusal));
                effects.push(Effect::Report(SlotCause::LoadFailed));
            }
            State::Draining { lease, running, .. } if lease.id == id => {
                *running = running.saturating_sub(1);
                self.end_of_drain(effects);
            }
            _ => {}
        }
    }

    pub(super) fn attach(
        &mut self,
        id: LeaseId,
        connection: ConnectionId,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let State::Reserved { lease, load } = &self.state else { return false };
        let is_loaded = matches!(load, Load::Done { .. });
        if lease.id != id || !is_loaded {
            return false;
        }
        self.state = State::Held(Holding {
            lease: lease.clone(),
            connection,
            silent_at: now + timing::SILENT,
            idleness: Idleness::Idle { tell_at: now + timing::IDLE },
            yield_by: None,
            running: 0,
        });
        effects.push(Effect::ToClient(connection, ManagerToClient::Attached { lease: id }));
        effects.push(Effect::Report(SlotCause::Attached));
        true
    }

    pub(super) fn client_alive(&mut self, connection: ConnectionId, now: MonotonicTime) {
        if let State::Held(held) = &mut self.state
            && held.connection == connection
        {
            held.silent_at = now + timing::SILENT;
        }
    }

    pub(super) fn step(
        &mut self,
        id: LeaseId,
        step: StepNumber,
        connection: ConnectionId,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        let State::Held(held) = &mut self.state else { return };
        let is_holder = held.connection == connection && held.lease.id == id;
        if !is_holder && self.rules.hold(Rule::OnlyTheHolderRuns) {
            return;
        }
        if held.running >= MAX_STEPS {
            self.drain(SlotCause::Misbehaved, now, effects);
            return;
        }
        held.running += 1;
        effects.push(Effect::Start(id, step));
        if std::mem::replace(&mut held.idleness, Idleness::Busy) == Idleness::Told {
            effects.push(Effect::Report(SlotCause::Busy));
        }
    }

    pub(super) fn step_ended(
        &mut self,
        id: LeaseId,
        step: StepNumber,
        used: Usage,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        match &mut self.state {
            State::Held(held) if held.lease.id == id => {
                let report = self.meter.count(used, now);
                held.running = held.running.saturating_sub(1);
                if held.running == 0 {
                    held.idleness = Idleness::Idle { tell_at: now + timing::IDLE };
                }
                effects
                    .push(Effect::ToClient(held.connection, ManagerToClient::StepDone { lease: id, step }));
                if report == Due::Yes {
                    effects.push(Effect::Report(SlotCause::Used));
                }
            }
            State::Draining { lease, running, .. } if lease.id == id => {
                self.meter.count(used, now);
                *running = running.saturating_sub(1);
                self.end_of_drain(effects);
            }
            _ => {}
        }
    }
}

fn bad(now: MonotonicTime) -> State {
    State::Bad(Probe::Waits { until: now + timing::PROBE })
}

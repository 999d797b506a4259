//! How leases end, and slots become bad and good again.

use super::super::event::Outcome;
use super::{DrainEnd, Effect, Idleness, Load, Probe, Slot, SlotTimer, State, bad};
use crate::ids::{ConnectionId, LeaseId};
use crate::lease::Work;
use crate::messages::{ManagerToClient, Refusal, SlotCause};
use crate::rules::Rule;
use crate::timing;
use fpga_core::units::{Millis, MonotonicTime};

impl Slot {
    /// Takes a Release. Whoever knows the lease's id may release it, by any connection.
    pub(in super::super) fn release(&mut self, id: LeaseId, now: MonotonicTime, effects: &mut Vec<Effect>) {
        match &self.state {
            State::Reserved { lease, .. } if lease.id == id => self.give_back(SlotCause::Released, effects),
            State::Held(held) if held.lease.id == id => self.drain(SlotCause::Released, now, effects),
            _ => {}
        }
    }

    pub(in super::super) fn client_closed(
        &mut self,
        connection: ConnectionId,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_held_by(connection) {
            self.drain(SlotCause::Closed, now, effects);
        }
    }

    pub(in super::super) fn recall(
        &mut self,
        id: LeaseId,
        longest_step: Millis,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        match &self.state {
            State::Reserved { lease, .. } if lease.id == id => self.give_back(SlotCause::Recalled, effects),
            State::Held(held) if held.lease.id == id => self.ask_to_yield(longest_step, now, effects),
            _ => {}
        }
    }

    /// Asks the client to yield if the slot is one of a group.
    pub(in super::super) fn yield_group(
        &mut self,
        longest_step: Millis,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        if let State::Held(held) = &self.state
            && matches!(held.lease.work, Work::Group(_))
        {
            self.ask_to_yield(longest_step, now, effects);
        }
    }

    pub(in super::super) fn killed(
        &mut self,
        id: LeaseId,
        outcome: Outcome,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        let State::Draining { lease, .. } = &self.state else { return };
        if lease.id == id {
            match outcome {
                Outcome::Done => self.free(SlotCause::Killed, effects),
                Outcome::Failed => self.become_bad(SlotCause::NotReaped, now, effects),
            }
        }
    }

    pub(in super::super) fn probed(
        &mut self,
        outcome: Outcome,
        now: MonotonicTime,
        effects: &mut Vec<Effect>,
    ) {
        if self.state != State::Bad(Probe::Runs) {
            return;
        }
        match outcome {
            Outcome::Done => {
                self.health.reset();
                self.state = State::Free;
                effects.push(Effect::Report(SlotCause::Probed));
            }
            Outcome::Failed => self.state = bad(now),
        }
    }

    pub(in super::super) fn fire(&mut self, timer: SlotTimer, now: MonotonicTime, effects: &mut Vec<Effect>) {
        match (&mut self.state, timer) {
            (State::Reserved { .. }, SlotTimer::Attach) => self.give_back(SlotCause::NotAttached, effects),
            (State::Reserved { lease, .. }, SlotTimer::Load) => {
                effects.push(Effect::Refused(lease.id, Refusal::LoadFailed));
                self.become_bad(SlotCause::LoadFailed, now, effects);
            }
            (State::Held(_), SlotTimer::Silent) => self.drain(SlotCause::Silent, now, effects),
            (State::Held(held), SlotTimer::Idle) => {
                held.idleness = Idleness::Told;
                effects.push(Effect::Report(SlotCause::Idle));
            }
            (State::Held(_), SlotTimer::Yield) => self.drain(SlotCause::YieldOverdue, now, effects),
            (State::Draining { lease, end, .. }, SlotTimer::Kill) => {
                effects.push(Effect::Kill(lease.id));
                *end = DrainEnd::Bad { at: now + timing::REAP };
                if !self.rules.hold(Rule::KillIsAwaited) {
                    self.free(SlotCause::Killed, effects);
                }
            }
            (State::Draining { .. }, SlotTimer::Reap) => self.become_bad(SlotCause::NotReaped, now, effects),
            (State::Bad(probe), SlotTimer::Probe) => {
                *probe = Probe::Runs;
                effects.push(Effect::Probe);
            }
            // The timer was due in the same tick as another one, which has changed the state.
            _ => {}
        }
    }

    fn ask_to_yield(&mut self, longest_step: Millis, now: MonotonicTime, effects: &mut Vec<Effect>) {
        if let State::Held(held) = &mut self.state
            && held.yield_by.is_none()
        {
            held.yield_by = Some(now + longest_step + timing::YIELD_SLACK);
            let lease = held.lease.id;
            effects.push(Effect::ToClient(held.connection, ManagerToClient::Yield { lease }));
        }
    }

    /// Ends a lease to which no client has attached. A load under way ends first.
    fn give_back(&mut self, cause: SlotCause, effects: &mut Vec<Effect>) {
        let State::Reserved { lease, load } = &self.state else { return };
        match load {
            Load::Running { until } => {
                effects.push(Effect::Refused(lease.id, Refusal::Recalled));
                // The load keeps its deadline, so that a stuck one holds the slot no longer than any other.
                let end = DrainEnd::Bad { at: *until };
                self.state = State::Draining { lease: lease.clone(), running: 1, end };
                effects.push(Effect::Report(cause));
            }
            Load::Done { .. } => self.free(cause, effects),
        }
    }

    /// Ends the lease of a client that has attached.
    pub(super) fn drain(&mut self, cause: SlotCause, now: MonotonicTime, effects: &mut Vec<Effect>) {
        let State::Held(held) = &self.state else { return };
        effects.push(Effect::CloseClient(held.connection));
        if held.running == 0 || !self.rules.hold(Rule::DrainWaitsForTasks) {
            self.free(cause, effects);
        } else {
            let end = DrainEnd::Kill { at: now + (timing::DRAIN - timing::REAP) };
            self.state = State::Draining { lease: held.lease.clone(), running: held.running, end };
            effects.push(Effect::Report(cause));
        }
    }

    pub(super) fn end_of_drain(&mut self, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Draining { running: 0, .. }) {
            self.free(SlotCause::Drained, effects);
        }
    }

    fn lease_id(&self) -> Option<LeaseId> {
        match &self.state {
            State::Free | State::Bad(_) => None,
            State::Reserved { lease, .. } | State::Draining { lease, .. } => Some(lease.id),
            State::Held(held) => Some(held.lease.id),
        }
    }

    fn free(&mut self, cause: SlotCause, effects: &mut Vec<Effect>) {
        self.last_ended = self.lease_id();
        self.state = State::Free;
        effects.push(Effect::Report(cause));
    }

    fn become_bad(&mut self, cause: SlotCause, now: MonotonicTime, effects: &mut Vec<Effect>) {
        self.last_ended = self.lease_id();
        self.state = bad(now);
        effects.push(Effect::Report(cause));
    }
}

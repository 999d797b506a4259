//! How a broker comes into office and leaves it (rule 7).

use super::event::{Action, Notice, SwapOutcome};
use super::queue::Queue;
use super::registry::Managers;
use super::{Broker, Role};
use crate::ids::Term;
use crate::rules::Rule;
use crate::timing;
use fpga_core::units::MonotonicTime;

impl Broker {
    /// Begins to take the term after `in_lease`, which is in the Kubernetes Lease.
    pub(super) fn swap(&mut self, in_lease: Term, actions: &mut Vec<Action>) {
        let next = in_lease.max(self.heard).next();
        self.role = Role::Swapping { next };
        actions.push(Action::SwapTerm { expected: in_lease, next });
    }

    pub(super) fn swapped(&mut self, outcome: SwapOutcome, now: MonotonicTime, actions: &mut Vec<Action>) {
        let Role::Swapping { next } = self.role else { return };
        match outcome {
            SwapOutcome::Failed => self.step_down(actions),
            // A manager has told of a later term meanwhile.
            SwapOutcome::Done if self.heard >= next => self.swap(next, actions),
            SwapOutcome::Done => {
                self.heard = next;
                self.role = Role::Settling { term: next, until: now + timing::SETTLE };
            }
        }
    }

    /// Takes a later term than the own one if a manager has accepted one that is.
    pub(super) fn hear(&mut self, term: Term, actions: &mut Vec<Action>) {
        if !self.rules.hold(Rule::LaterTermsWin) {
            return;
        }
        self.heard = self.heard.max(term);
        if let Role::Settling { term: own, .. } | Role::Active { term: own } = self.role
            && term > own
        {
            self.swap(own, actions);
        }
    }

    pub(super) fn step_down(&mut self, actions: &mut Vec<Action>) {
        if self.role == Role::Standby {
            return;
        }
        actions.extend(self.managers.connections().chain(self.queue.connections()).map(Action::Close));
        actions.push(Action::Notice(Notice::Inactive));
        (self.managers, self.queue) = (Managers::default(), Queue::default());
        self.role = Role::Standby;
    }
}

//! How a broker comes into office and leaves it (rule 7).

use super::event::{Action, Notice, SwapOutcome};
use super::queue::Queue;
use super::registry::Managers;
use super::{Broker, Role};
use crate::ids::Term;
use crate::rules::Rule;
use crate::timing;
use fpga_core::units::MonotonicTime;

/// How far a manager's word takes a broker's term at once. Brokers count one by one: a term that is later by more is a
/// lie, or follows from one, and terms must not run out by lies.
const LEAP: u64 = 1 << 20;

impl Broker {
    pub(super) fn run_for_office(&mut self, in_lease: Term, actions: &mut Vec<Action>) {
        self.role = Role::Swapping;
        self.swap_term(in_lease, actions);
    }

    /// Begins to take the term after `in_lease`, which is in the Kubernetes Lease.
    fn swap_term(&mut self, in_lease: Term, actions: &mut Vec<Action>) {
        let next = in_lease.max(self.heard).next();
        self.swapping = Some(next);
        actions.push(Action::SwapTerm { expected: in_lease, next });
    }

    pub(super) fn swapped(&mut self, outcome: SwapOutcome, now: MonotonicTime, actions: &mut Vec<Action>) {
        let Some(term) = self.swapping.take() else { return };
        if outcome == SwapOutcome::Failed {
            self.step_down(actions);
            return;
        }
        self.role = match self.role {
            Role::Active { .. } => Role::Active { term },
            Role::Settling { until, .. } => Role::Settling { term, until },
            Role::Standby | Role::Swapping => Role::Settling { term, until: now + timing::SETTLE },
        };
        // A manager may have told of a later term meanwhile.
        let is_latest = self.heard < term;
        self.heard = self.heard.max(term);
        if !is_latest && term < term.next() {
            self.swap_term(term, actions);
        }
    }

    /// Takes a later term than the own one if a manager has accepted one that is. The broker grants meanwhile: a manager
    /// that lies keeps nobody from the other managers' slots.
    pub(super) fn hear(&mut self, term: Term, actions: &mut Vec<Action>) {
        if !self.rules.hold(Rule::LaterTermsWin) {
            return;
        }
        let latest = Term(self.heard.0.saturating_add(LEAP));
        self.heard = self.heard.max(term.min(latest));
        if let Role::Settling { term: own, .. } | Role::Active { term: own } = self.role
            && self.heard > own
            && self.swapping.is_none()
        {
            self.swap_term(own, actions);
        }
    }

    pub(super) fn step_down(&mut self, actions: &mut Vec<Action>) {
        if self.role == Role::Standby {
            return;
        }
        actions.extend(self.managers.connections().chain(self.queue.connections()).map(Action::Close));
        actions.push(Action::Notice(Notice::Inactive));
        (self.managers, self.queue) = (Managers::default(), Queue::default());
        (self.role, self.swapping) = (Role::Standby, None);
    }
}

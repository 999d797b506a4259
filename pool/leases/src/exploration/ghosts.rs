//! What follows every move: ghosts are kept up to date, and numbers that only grow begin at 0 again.

use super::invariant::Invariant;
use super::world::World;
use crate::broker::Broker;
use crate::client::Phase;
use crate::ids::LeaseId;
use crate::lease::{Wanted, Work};
use crate::manager;
use crate::messages::{BrokerToManager, ClientToBroker, ManagerToBroker, SlotStatus};
use std::collections::BTreeSet;

impl World {
    /// Numbers what is under way to brokers from 0, so that states that differ in nothing else are one.
    pub(super) fn number_reports_from_0(&mut self) {
        let current = self.manager.as_ref().and_then(manager::Manager::broker_connection);
        for link in &mut self.manager_links {
            let expected = self
                .brokers
                .get_mut(link.between)
                .map_or(0, |broker: &mut Broker| broker.renumber_reports(link.id));
            for message in &mut link.up {
                if let ManagerToBroker::Slot(report) = message {
                    report.seq = report.seq.saturating_sub(expected);
                }
            }
            if let Some(manager) = self.manager.as_mut().filter(|_| current == Some(link.id)) {
                let is_whole = link.is_whole();
                manager.renumber_reports(|next| if is_whole { next.saturating_sub(expected) } else { 0 });
            }
        }
    }

    pub(super) fn note_recall(&mut self, message: &BrokerToManager) {
        if let BrokerToManager::Recall { lease } = message {
            let mut slots = self.slots().filter_map(|slot| self.slot(slot));
            if slots.any(|slot| matches!(slot, SlotStatus::Held(held, _) if held.id == *lease)) {
                self.ghosts.recalled.insert(*lease);
            }
        }
    }

    /// A Want of a run says how many bytes are left.
    pub(super) fn note_want(&mut self, client: usize, message: &ClientToBroker) {
        if let ClientToBroker::Want { wanted: Wanted { work: Work::Run { bytes }, .. }, .. } = message
            && self.rest(client).is_some_and(|rest| rest != *bytes)
        {
            let what = "a Want says other bytes than those whose outputs are not there";
            self.ghosts.broken = Some((Invariant::WantsSayTheRest, what));
        }
    }

    /// Keeps the ghosts up to date after a move; `before` are the leases that slots had.
    pub(super) fn note(&mut self, before: &BTreeSet<LeaseId>) {
        let after = self.leases_of_slots();
        self.ghosts.ended.extend(before.difference(&after));
        self.ghosts.recalled.retain(|lease| after.contains(lease));
        if let Some(manager) = &self.manager {
            self.ghosts.max_term = self.ghosts.max_term.max(manager.max_term());
        }
        let jobs = self.clients.iter().filter_map(|client| client.job.as_ref());
        for job in jobs.filter(|job| !matches!(job.phase(), Phase::Ended(_))) {
            if let Some(ticket) = job.ticket() {
                self.ghosts.arrivals.entry(job.id()).or_insert(ticket.first_arrival);
            }
        }
        let named = self.leases();
        self.ghosts.ended.retain(|lease| named.contains(lease));
        if let Some(manager) = &mut self.manager {
            manager.forget_ended(|lease| named.contains(&lease));
        }
    }
}

//! What follows every move: ghosts are kept up to date, and numbers that only grow begin at 0 again.

use super::lease_ids::of_status;
use super::world::World;
use crate::broker::Broker;
use crate::client::Phase;
use crate::ids::LeaseId;
use crate::manager;
use crate::messages::{BrokerToManager, ManagerToBroker, SlotStatus};

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
        if let BrokerToManager::Recall { lease } = message
            && let Some(SlotStatus::Held(held, _)) = self.slot()
            && held.id == *lease
        {
            self.ghosts.recalled = Some(*lease);
        }
    }

    /// Keeps the ghosts up to date after a move; `before` is the lease that the slot had.
    pub(super) fn note(&mut self, before: Option<LeaseId>) {
        let after = self.slot().as_ref().and_then(of_status);
        if before != after {
            self.ghosts.ended.extend(before);
        }
        if self.ghosts.recalled != after {
            self.ghosts.recalled = None;
        }
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

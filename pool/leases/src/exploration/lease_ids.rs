//! Which lease ids a world still names. An id that nothing names may be given to a new lease, which keeps the number of
//! states finite: no party could tell the old lease from the new one.

use super::world::World;
use crate::broker::SlotRecord;
use crate::ids::LeaseId;
use crate::messages::{
    BrokerToClient, BrokerToManager, ClientToManager, ManagerToBroker, ManagerToClient, SlotStatus,
};
use std::collections::BTreeSet;

impl World {
    /// The lease ids that some party, message, connection, or task names. The manager's memory of ended leases does not
    /// count: it matters only for an id that comes back.
    pub(super) fn leases(&self) -> BTreeSet<LeaseId> {
        let mut found = BTreeSet::new();
        found.extend(self.leases_of_slots());
        found.extend(self.tasks().map(|(lease, _)| lease));
        found.extend(self.regions().flat_map(|(_, region)| region.load.into_iter().chain(region.kill)));
        found.extend(&self.ghosts.recalled);
        for broker in &self.brokers {
            found.extend(broker.jobs().filter_map(|job| job.preparing));
            found.extend(broker.slots().filter_map(|(.., record)| match record {
                SlotRecord::Preparing(lease) | SlotRecord::Leased { lease, .. } => Some(lease.id),
                SlotRecord::Free | SlotRecord::Unknown | SlotRecord::Bad => None,
            }));
        }
        found.extend(self.clients.iter().filter_map(|client| client.job.as_ref()?.lease()));
        for link in &self.manager_links {
            link.up.iter().for_each(|message| to_broker(message, &mut found));
            found.extend(link.down.iter().map(|message| match message {
                BrokerToManager::Prepare { lease, .. } => lease.id,
                BrokerToManager::Recall { lease } => *lease,
            }));
        }
        for message in self.client_links.iter().flat_map(|link| &link.down) {
            if let BrokerToClient::Offer { lease, .. } = message {
                found.insert(*lease);
            }
        }
        for link in &self.lease_links {
            found.insert(link.between.1);
            found.extend(link.up.iter().map(|message| match message {
                ClientToManager::Attach { lease }
                | ClientToManager::Step { lease, .. }
                | ClientToManager::Release { lease } => *lease,
            }));
            found.extend(link.down.iter().map(|message| match message {
                ManagerToClient::Attached { lease }
                | ManagerToClient::Gone { lease }
                | ManagerToClient::Yield { lease }
                | ManagerToClient::StepDone { lease, .. }
                | ManagerToClient::StepRefused { lease, .. } => *lease,
            }));
        }
        found
    }

    /// The leases that slots have.
    pub(super) fn leases_of_slots(&self) -> BTreeSet<LeaseId> {
        self.slots().filter_map(|slot| of_status(&self.slot(slot)?)).collect()
    }

    /// The smallest id that nothing names.
    pub(super) fn unused_lease(&self) -> LeaseId {
        let used = self.leases();
        (1..).map(LeaseId).find(|id| !used.contains(id)).unwrap_or(LeaseId(u128::MAX))
    }
}

/// The lease that a status names.
pub(super) fn of_status(status: &SlotStatus) -> Option<LeaseId> {
    match status {
        SlotStatus::Reserved(lease) | SlotStatus::Held(lease, _) | SlotStatus::Draining(lease) => {
            Some(lease.id)
        }
        SlotStatus::Free | SlotStatus::Bad => None,
    }
}

fn to_broker(message: &ManagerToBroker, found: &mut BTreeSet<LeaseId>) {
    match message {
        ManagerToBroker::Register { slots, .. } => found.extend(slots.iter().filter_map(of_status)),
        ManagerToBroker::Slot(report) => found.extend(of_status(&report.status)),
        ManagerToBroker::Prepared { lease } | ManagerToBroker::Refused { lease, .. } => {
            found.insert(*lease);
        }
    }
}

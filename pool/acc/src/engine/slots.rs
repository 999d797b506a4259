//! Slots are taken and given up.

use super::{Engine, Input, Offered, SlotUse};
use crate::slot::{self, LeasedSlot, Report};
use fpga_pool_api::client::Offer;
use fpga_pool_leases::ids::{JobUuid, LeaseId};
use fpga_pool_leases::lease::Endpoint;
use std::sync::Arc;

impl Engine {
    pub(super) fn attach(&mut self, job: JobUuid, lease: LeaseId, endpoint: &Endpoint) {
        let offered = self.offers.remove(&lease);
        let owner = self.jobs.get(&job).and_then(|entry| self.owners.get_mut(entry.owner));
        let (Some(owner), Some(Offered { node, digest })) = (owner, offered) else { return };
        let (steps, for_slot) = std::sync::mpsc::channel();
        let work = owner.work(digest);
        owner.takes_slot_of(&node);
        self.slots.insert(lease, SlotUse { job, steps: Some(steps), session: None });
        self.start(lease, endpoint, &node, LeasedSlot { work, steps: for_slot });
    }

    /// Takes a slot and gives it up at once, so that its manager need not wait for this client.
    pub(super) fn decline(&mut self, job: JobUuid, offer: &Offer) {
        let (_, for_slot) = std::sync::mpsc::channel();
        self.slots.insert(offer.lease, SlotUse { job, steps: None, session: None });
        self.start(offer.lease, &offer.endpoint, &offer.node, LeasedSlot { work: None, steps: for_slot });
    }

    fn start(&mut self, lease: LeaseId, endpoint: &Endpoint, node: &str, slot: LeasedSlot) {
        let is_local = self.config.node.as_deref() == Some(node);
        let inputs = self.inputs.clone();
        let report: Report = Arc::new(move |event| {
            // After the engine's end nobody listens.
            let _ = inputs.send(Input::Slot(lease, event));
        });
        slot::start(lease, slot::addresses(endpoint, is_local), slot, &report);
    }

    pub(super) fn close(&mut self, lease: LeaseId) {
        // Threads that still open the session report it, and the session is closed then.
        if let Some(slot) = self.slots.get_mut(&lease) {
            slot.steps = None;
            if let Some(session) = slot.session.take() {
                session.close();
            }
        }
    }
}

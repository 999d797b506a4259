//! Bundles: the leases of a bundle's jobs are offered together when all of them are prepared. If one of them can't be
//! had, the others are given back, and all jobs wait again.

use super::Broker;
use super::event::{Action, Notice, SlotRecord};
use super::queue::{Asked, BundleKey, BundleStage, Job, Phase, Reserved};
use crate::ids::JobUuid;
use crate::messages::BrokerToManager;

impl Broker {
    /// Offers the leases of a bundle if all are prepared.
    pub(super) fn offer_bundle(&mut self, bundle: &BundleKey, actions: &mut Vec<Action>) {
        if self.queue.bundle_stage(bundle) != BundleStage::Prepared {
            return;
        }
        let has_client = |(_, job): (JobUuid, &Job)| job.connection().is_some();
        if !self.queue.bundle(bundle).all(has_client) {
            self.give_back_bundle(bundle, actions);
            return;
        }
        for (job, Reserved { lease, manager, .. }) in self.reserved(bundle) {
            actions.extend(self.offer(manager, job, lease));
            self.forget(job, actions);
        }
    }

    /// Gives back the slots that are reserved for a bundle: another one can't be had. A job whose lease is still being
    /// prepared finds its bundle incomplete when the answer comes.
    pub(super) fn give_back_bundle(&mut self, bundle: &BundleKey, actions: &mut Vec<Action>) {
        for (job, reserved) in self.reserved(bundle) {
            self.give_back(reserved, actions);
            self.queue.set_phase(job, Phase::Waiting);
            actions.push(Action::Notice(Notice::Waiting(job)));
        }
    }

    /// Recalls a lease that was not offered. The slot's next report tells how the lease ends.
    pub(super) fn give_back(&mut self, reserved: Reserved, actions: &mut Vec<Action>) {
        let Reserved { lease, manager, slot } = reserved;
        let Some(connection) = self.managers.current(manager) else { return };
        let is_its =
            |record: &SlotRecord| matches!(record, SlotRecord::Leased { lease: of, .. } if of.id == lease);
        if self.slot(manager, slot).is_some_and(is_its) {
            self.managers.set(manager, slot, SlotRecord::Unknown);
            actions.push(Action::ToManager(connection, BrokerToManager::Recall { lease }));
        }
    }

    /// A job that has asked for a slot with a bundle asks without it, or with another one.
    pub(super) fn leave_former_bundle(&mut self, asked: &Asked, actions: &mut Vec<Action>) {
        let former = self.queue.get(asked.job).filter(|known| known.wanted.bundle != asked.wanted.bundle);
        if former.is_some()
            && let Some(bundle) = self.queue.bundle_of(asked.job)
        {
            self.give_back_bundle(&bundle, actions);
        }
    }

    fn reserved(&self, bundle: &BundleKey) -> Vec<(JobUuid, Reserved)> {
        let reserved = self.queue.bundle(bundle).filter_map(|(id, job)| match job.phase {
            Phase::Prepared(reserved) => Some((id, reserved)),
            Phase::Waiting | Phase::Preparing(_) => None,
        });
        reserved.collect()
    }
}

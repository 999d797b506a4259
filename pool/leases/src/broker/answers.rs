//! What managers answer to a Prepare and report of their slots, and what that means for the jobs.

use super::event::{Action, LeaseStage, Notice, SlotRecord};
use super::queue::{BundleStage, Phase, Reserved};
use super::registry::Reported;
use super::{Broker, registry};
use crate::ids::{ConnectionId, JobUuid, LeaseId, ManagerId};
use crate::lease::Lease;
use crate::messages::{BrokerToClient, BrokerToManager, Refusal, SlotReport};
use crate::rules::Rule;
use crate::timing;
use fpga_core::units::MonotonicTime;

impl Broker {
    pub(super) fn report(&mut self, connection: ConnectionId, report: SlotReport, actions: &mut Vec<Action>) {
        let (slot, why, usage) = (report.slot, report.why, report.usage);
        let former = self.managers.lease_in(connection, slot);
        match self.managers.report(connection, report, self.rules) {
            Reported::Taken(manager) => {
                actions.push(Action::Notice(Notice::Slot { manager, slot, why, usage }));
                if let Some((job, lease)) = former
                    && self.managers.lease_in(connection, slot) != former
                {
                    self.wait_again(job, lease, actions);
                }
            }
            Reported::Stale => {}
            Reported::OutOfOrder => {
                self.lose_manager(connection, actions);
                actions.push(Action::Close(connection));
            }
        }
    }

    pub(super) fn prepared(&mut self, connection: ConnectionId, id: LeaseId, actions: &mut Vec<Action>) {
        let Some((manager, lease)) = self.managers.answered(id, connection) else { return };
        let job = lease.job;
        if !self.is_wanted(&lease) {
            // The slot's next report tells how the lease ends.
            actions.push(Action::ToManager(connection, BrokerToManager::Recall { lease: id }));
            self.wait_again(job, id, actions);
            return;
        }
        let slot = lease.slot;
        self.managers.set(manager, slot, SlotRecord::Leased { lease, stage: LeaseStage::Reserved });
        match self.queue.bundle_of(job) {
            None => {
                if self.rules.hold(Rule::OfferAfterPrepared) {
                    actions.extend(self.offer(manager, job, id));
                }
                self.forget(job, actions);
            }
            Some(bundle) => {
                self.queue.set_phase(job, Phase::Prepared(Reserved { lease: id, manager, slot }));
                self.offer_bundle(&bundle, actions);
            }
        }
    }

    /// Whether the lease's job still waits for it, with a client, and all other jobs of its bundle have leases, too.
    fn is_wanted(&self, lease: &Lease) -> bool {
        let job = self.queue.get(lease.job).filter(|job| job.phase == Phase::Preparing(lease.id));
        let bundle = || self.queue.bundle_of(lease.job);
        job.is_some_and(|job| job.connection().is_some())
            && bundle().is_none_or(|key| self.queue.bundle_stage(&key) != BundleStage::Incomplete)
    }

    pub(super) fn offer(&self, manager: ManagerId, job: JobUuid, lease: LeaseId) -> Option<Action> {
        let connection = self.queue.get(job)?.connection()?;
        let endpoint = self.managers.get(manager)?.endpoint.clone();
        Some(Action::ToClient(connection, BrokerToClient::Offer { job, lease, endpoint }))
    }

    pub(super) fn refused(
        &mut self,
        connection: ConnectionId,
        id: LeaseId,
        why: Refusal,
        now: MonotonicTime,
        actions: &mut Vec<Action>,
    ) {
        let Some((manager, lease)) = self.managers.answered(id, connection) else { return };
        if let Refusal::OldTerm { max_term } = why {
            self.hear(max_term, actions);
        }
        if matches!(why, Refusal::BadBitstream | Refusal::NoFile) {
            self.managers.refuses(manager, &lease, now + timing::PROBE);
        }
        actions.push(Action::Notice(Notice::Refused { manager, slot: lease.slot, why }));
        self.wait_again(lease.job, id, actions);
    }

    /// A job that has not been offered its lease has lost it, and so have the other jobs of its bundle.
    pub(super) fn wait_again(&mut self, job: JobUuid, lease: LeaseId, actions: &mut Vec<Action>) {
        if self.queue.get(job).is_some_and(|job| job.lease() == Some(lease)) {
            self.queue.set_phase(job, Phase::Waiting);
            actions.push(Action::Notice(Notice::Waiting(job)));
            if let Some(bundle) = self.queue.bundle_of(job) {
                self.give_back_bundle(&bundle, actions);
            }
        }
    }

    pub(super) fn lose_manager(&mut self, connection: ConnectionId, actions: &mut Vec<Action>) {
        let Some(registry::Closed { manager, leases }) = self.managers.close(connection) else { return };
        actions.push(Action::Notice(Notice::Lost(manager)));
        for lease in leases {
            self.wait_again(lease.job, lease.id, actions);
        }
    }

    /// Removes a job that is not to have the lease that it may have been granted.
    pub(super) fn remove(&mut self, job: JobUuid, actions: &mut Vec<Action>) {
        let bundle = self.queue.bundle_of(job);
        if let Some(Phase::Prepared(reserved)) = self.queue.get(job).map(|job| job.phase) {
            self.give_back(reserved, actions);
        }
        self.forget(job, actions);
        if let Some(bundle) = bundle {
            self.give_back_bundle(&bundle, actions);
        }
    }

    /// Forgets a job.
    pub(super) fn forget(&mut self, job: JobUuid, actions: &mut Vec<Action>) {
        if self.queue.remove(job).is_some() {
            actions.push(Action::Notice(Notice::Left(job)));
        }
    }
}

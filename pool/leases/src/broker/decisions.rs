//! Carrying out what a policy decides.

use super::event::{Action, Grant, GrantError, LeaseStage, SlotRecord};
use super::queue::{Job, Phase};
use super::{Broker, Role};
use crate::ids::{ConnectionId, JobUuid, ManagerId, Term};
use crate::lease::Lease;
use crate::messages::{BrokerToClient, BrokerToManager, CancelCause};
use crate::rules::Rule;
use crate::timing;
use fpga_board::slots::SlotIndex;
use fpga_core::units::MonotonicTime;

impl Broker {
    /// Whether a decision can be carried out.
    ///
    /// # Errors
    /// [`GrantError`], if not.
    pub fn can_grant(&self, grant: &Grant, now: MonotonicTime) -> Result<(), GrantError> {
        self.prepare(grant, now).map(drop)
    }

    /// Carries out a decision: asks the manager for a lease of a free slot.
    ///
    /// # Errors
    /// [`GrantError`]; the broker is unchanged then.
    pub fn grant(&mut self, grant: &Grant, now: MonotonicTime) -> Result<Vec<Action>, GrantError> {
        let (connection, term, lease) = self.prepare(grant, now)?;
        let prepare = BrokerToManager::Prepare { term, lease: lease.clone(), usage_every: grant.usage_every };
        let mut actions = vec![Action::ToManager(connection, prepare)];
        if !self.rules.hold(Rule::OfferAfterPrepared) {
            actions.extend(self.offer(grant.manager, grant.job, grant.lease));
        }
        self.managers.prepare(grant.manager, lease, now + timing::ANSWER);
        self.queue.set_phase(grant.job, Phase::Preparing(grant.lease));
        Ok(actions)
    }

    /// The lease that a decision asks for, and where it is asked for.
    fn prepare(&self, grant: &Grant, now: MonotonicTime) -> Result<(ConnectionId, Term, Lease), GrantError> {
        let Role::Active { term } = self.role else { return Err(GrantError::NotActive) };
        let job = self.queue.get(grant.job).filter(|job| job.phase == Phase::Waiting);
        let job = job.ok_or(GrantError::NotWaiting(grant.job))?;
        if job.connection().is_none() {
            return Err(GrantError::Detached(grant.job));
        }
        let (manager, slot) = (grant.manager, grant.slot);
        let not_free = GrantError::NotFree { manager, slot };
        let record = self.managers.get(manager).ok_or(not_free)?;
        if record.slots.get(slot.0 as usize) != Some(&SlotRecord::Free) {
            return Err(not_free);
        }
        if record.has_refused(slot, &grant.digest, now) {
            return Err(GrantError::BadBitstream { manager, slot });
        }
        let lease = Lease {
            id: grant.lease,
            incarnation: record.incarnation,
            slot,
            job: grant.job,
            tenant: job.tenant.clone(),
            digest: grant.digest,
            work: job.wanted.work,
            first_arrival: job.first_arrival,
        };
        Ok((record.connection, term, lease))
    }

    /// Carries out a decision: asks for the end of the lease that a slot has. `None` if it has none, or one that ends.
    #[must_use]
    pub fn recall(&self, manager: ManagerId, slot: SlotIndex) -> Option<Action> {
        let (connection, lease, stage) = self.managers.find(manager, slot)?;
        let recall = BrokerToManager::Recall { lease: lease.id };
        (stage != LeaseStage::Draining).then_some(Action::ToManager(connection, recall))
    }

    /// Carries out a decision: a waiting job won't get a slot.
    pub fn cancel(&mut self, job: JobUuid, why: CancelCause) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(connection) = self.queue.get(job).and_then(Job::connection) {
            actions.push(Action::ToClient(connection, BrokerToClient::Cancel { job, why }));
        }
        self.remove(job, &mut actions);
        actions
    }
}

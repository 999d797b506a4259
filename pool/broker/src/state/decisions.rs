//! Carrying out what the policy decides.

use super::{Granted, Output, State};
use crate::policy::{Decision, SlotId};
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, Moment};
use fpga_pool_api::client::{Cancelled, ToClient};
use fpga_pool_leases::broker::{Action, Grant, GrantError};
use fpga_pool_leases::ids::JobUuid;
use fpga_pool_leases::messages::{BrokerToClient, CancelCause};
use std::collections::VecDeque;

impl State {
    /// Carries out all decisions, and those that follow.
    pub(super) fn carry_out_decisions(
        &mut self,
        todo: &mut VecDeque<Action>,
        outputs: &mut Vec<Output>,
        now: Moment,
    ) {
        loop {
            let decisions = self.policy.decisions();
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                match decision {
                    Decision::Grant { job, slot, digest, usage_every } => {
                        todo.extend(self.grant(job, slot, digest, usage_every, now));
                    }
                    Decision::Recall(slot) => {
                        if self.policy.is_recall_due(slot)
                            && let Some(recall) = self.broker.recall(slot.manager, slot.slot)
                        {
                            self.policy.recalled(slot);
                            self.metrics.recalls.inc();
                            todo.push_back(recall);
                        }
                    }
                    Decision::Cancel { job, why, message } => {
                        todo.extend(self.cancel(job, why, message, outputs));
                    }
                }
            }
        }
    }

    fn grant(
        &mut self,
        job: JobUuid,
        slot: SlotId,
        digest: Digest,
        usage_every: Millis,
        now: Moment,
    ) -> Vec<Action> {
        let lease = (self.new_lease_id)();
        let (SlotId { manager, slot: index }, usage_every) = (slot, Some(usage_every));
        let grant = Grant { job, manager, slot: index, digest, lease, usage_every };
        let first_arrival = self.broker.job(job).map_or(now.wall, |job| job.first_arrival);
        match self.broker.grant(&grant, now.now) {
            Ok(actions) => {
                self.metrics.grants.inc();
                self.granted.insert(job, Granted { slot, digest, first_arrival });
                actions
            }
            Err(error) => {
                self.policy.grant_failed(slot, now);
                if matches!(error, GrantError::BadBitstream { .. }) {
                    self.policy.bitstream_failed(slot, digest, job, now);
                }
                self.follow(slot, None, now);
                self.wait(job, now);
                Vec::new()
            }
        }
    }

    fn cancel(
        &mut self,
        job: JobUuid,
        why: CancelCause,
        message: String,
        outputs: &mut Vec<Output>,
    ) -> Vec<Action> {
        self.metrics.cancelled(why);
        let mut actions = self.broker.cancel(job, why);
        // The client is told more than the protocol knows.
        if let Some(Action::ToClient(connection, BrokerToClient::Cancel { .. })) = actions.first() {
            let cancelled = Cancelled { job, why, message };
            outputs.push(Output::ToClient(*connection, ToClient::Cancelled(cancelled)));
            actions.remove(0);
        }
        actions
    }
}

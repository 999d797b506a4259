//! The bundle of a world: the policy that grants it, and what its client's process does, as the client library does it.

use super::invariant::Invariant;
use super::moves::Move;
use super::world::World;
use crate::broker;
use crate::ids::JobUuid;
use crate::lease::Bundle;
use crate::messages::BrokerToClient;
use fpga_board::slots::SlotIndex;

impl World {
    /// The jobs of a broker that ask for slots with their bundle.
    pub(super) fn bundled_at(&self, index: usize) -> Vec<(JobUuid, Bundle)> {
        let jobs = self.brokers.get(index).into_iter().flat_map(broker::Broker::jobs);
        jobs.filter_map(|job| Some((job.id, job.wanted.bundle?))).collect()
    }

    /// A slot for each job of a bundle, if the broker may grant that many now; else nothing.
    pub(super) fn together(&self, index: usize) -> Vec<(JobUuid, SlotIndex)> {
        let bundled = self.bundled_at(index);
        let Some((_, Bundle { id, size })) = bundled.first().copied() else { return Vec::new() };
        let jobs: Vec<JobUuid> =
            bundled.into_iter().filter(|(_, of)| of.id == id).map(|(job, _)| job).collect();
        let mut pairs = Vec::new();
        for job in &jobs {
            let is_taken = |slot: &SlotIndex| pairs.iter().any(|(_, taken)| taken == slot);
            let slots = self.grants(index, *job).filter_map(|what| match what {
                Move::Grants(_, _, slot) => Some(slot),
                _ => None,
            });
            let slot = slots.into_iter().find(|slot| !is_taken(slot));
            pairs.extend(slot.map(|slot| (*job, slot)));
        }
        if pairs.len() == size as usize { pairs } else { Vec::new() }
    }

    /// Grants to one job of a bundle alone: the policy grants all of them, and the others' grants fail.
    pub(super) fn partial_grants(&self, moves: &mut Vec<Move>) {
        for index in (0..self.brokers.len()).filter(|_| self.may_grant()) {
            moves.extend(self.bundled_at(index).into_iter().flat_map(|(job, _)| self.grants(index, job)));
        }
    }

    /// Notes whether a bundle's jobs are offered their leases together; `bundled` are the jobs from before the offers.
    pub(super) fn note_offers(&mut self, bundled: &[(JobUuid, Bundle)], actions: &[broker::Action]) {
        let is_offered = |id: JobUuid| {
            actions.iter().any(|action| {
                matches!(action, broker::Action::ToClient(_, BrokerToClient::Offer { job, .. }) if *job == id)
            })
        };
        let offered: Vec<Bundle> =
            bundled.iter().filter(|(job, _)| is_offered(*job)).map(|(_, bundle)| *bundle).collect();
        let is_whole = |of: &Bundle| offered.iter().filter(|other| *other == of).count() == of.size as usize;
        if !offered.iter().all(is_whole) {
            let what = "jobs of a bundle are offered leases without the others";
            self.ghosts.broken = Some((Invariant::BundlesAreWhole, what));
        }
    }

    /// An Offer came for a client's job, or the job is given up: all jobs of its bundle leave the bundle. Returns them, or
    /// the client itself if its job is in no bundle.
    pub(super) fn leave_bundle_of(&mut self, client: usize) -> Vec<usize> {
        let job = |index: usize| self.clients.get(index).and_then(|client| client.job.as_ref());
        let Some(bundle) = job(client).and_then(crate::client::Job::bundle) else { return vec![client] };
        let is_its = |index: &usize| job(*index).is_some_and(|job| job.bundle() == Some(bundle));
        let all: Vec<usize> = (0..self.clients.len()).filter(is_its).collect();
        for index in &all {
            if let Some(job) = self.clients.get_mut(*index).and_then(|client| client.job.as_mut()) {
                job.leave_bundle();
            }
        }
        all
    }

    /// Whether a client asks by itself at the next opportunity.
    pub(super) fn may_ask(&self, client: usize) -> bool {
        let job = self.clients.get(client).and_then(|client| client.job.as_ref());
        job.is_some_and(|job| {
            let mut after = job.clone();
            after.ask_by_itself();
            after != *job
        })
    }

    /// Lets a client ask by itself, if it has reason to.
    pub(super) fn ask_by_itself(&mut self, client: usize) {
        let job = self.clients.get_mut(client).and_then(|client| client.job.as_mut());
        let actions = job.map(crate::client::Job::ask_by_itself).unwrap_or_default();
        self.client_actions(client, actions);
    }
}

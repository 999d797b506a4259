//! Decisions of the pool: which job gets a slot, and which slot a job gets.

use super::{Pool, PoolError, Running, served};
use crate::pool::homebound::LongEnough;
use crate::pool::jobs::{Offer, Waiting};
use crate::pool::policy::{Candidates, Fit, IdleChoice, Rank};
use crate::pool::queue::RemoteJobs;
use crate::pool::slots::{Holder, Released};
use crate::pool::tenants::Turn;
use crate::pool::{Arrival, Bytes, Grant, Job, JobId, NodeIndex, Place, SlotClass, TenantId};
use std::time::Duration;

/// Whether jobs that a slot skips are counted as skipped (D).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skips {
    /// The slot has just become free.
    Counted,
    /// The slot was idle before.
    Uncounted,
}

impl Pool {
    pub(super) fn waiting_job(&self, job: Job, arrival: Arrival, now: Duration) -> Waiting {
        Waiting::new(job, arrival, self.slots.home(job.home, job.classes), &self.policy, now)
    }

    pub(super) fn queue(&mut self, waiting: Waiting, now: Duration) {
        let served = served(&self.slots, waiting.job.classes);
        self.waiting.insert(waiting, &self.policy, served, now);
    }

    /// Removes a job from the waiting ones.
    pub(super) fn take(&mut self, job: JobId) -> Option<Waiting> {
        let waiting = self.waiting.remove(job, &self.policy)?;
        if self.waiting.of_tenant(waiting.job.tenant).0 == 0 {
            self.tenants.has_none_waiting(waiting.job.tenant);
        }
        if self.waiting.len() == 0 {
            self.tenants.nobody_waits();
        }
        Some(waiting)
    }

    /// Starts a new job if an idle slot is for it. No waiting job can use an idle slot, or it would have one. So the new
    /// job is the only candidate.
    pub(super) fn start_in_idle(&mut self, waiting: &Waiting, now: Duration) -> Option<Grant> {
        let job = waiting.job;
        if !self.may_start(job.tenant) {
            return None;
        }
        let classes = job.classes.without(self.bundles.kept());
        let home = || self.slots.idle_at(job.home, classes).map(|class| (job.home, class));
        let (node, class) = match self.policy.fit {
            Fit::Anyone(IdleChoice::LongestIdle) => self.slots.longest_idle(classes),
            Fit::LocalOnly => home(),
            Fit::Anyone(IdleChoice::HomeFirst) | Fit::ResourceAware(_) => {
                home().or_else(|| self.slots.calmest(classes, job.accelerator))
            }
        }?;
        let alone = waiting.alone(node, self.slots.remote(node, self.contention()));
        self.policy.fit.fitting(&alone).or_else(|| self.policy.fit.otherwise(&alone))?;
        self.start(waiting, node, class, now)
    }

    /// Whether a job of the tenant may get a slot.
    fn may_start(&self, tenant: TenantId) -> bool {
        self.tenants.may_hold(tenant, 1) && !self.bundles.keeps_quota(tenant)
    }

    /// Whether a waiting job, not one of a bundle, could use a slot of the class.
    pub(super) fn is_wanted_by_job(&self, class: SlotClass) -> bool {
        self.waiting.tenants_for(class).any(|tenant| self.may_start(tenant))
    }

    /// Starts a job in an idle slot of a node.
    pub(super) fn start(
        &mut self,
        waiting: &Waiting,
        node: NodeIndex,
        class: SlotClass,
        now: Duration,
    ) -> Option<Grant> {
        let Waiting { job, arrival, .. } = *waiting;
        let place = if job.home == node { Place::Local } else { Place::Remote };
        let slot = self.slots.take(node, class, job.accelerator, Holder::Job(place))?;
        let price = self.tenants.price(job.accelerator, job.size);
        let paid = self.tenants.pay(job.tenant, price);
        self.tenants.hold(job.tenant);
        self.running.insert(job.id, Running { job, arrival, node, slot, class, place, started: now, paid });
        Some(Grant { job: job.id, node, slot, place })
    }

    /// Ends a running job, which has processed so many bytes of its size, and offers its slot to the waiting ones.
    pub(super) fn end(
        &mut self,
        job: JobId,
        processed: impl FnOnce(Bytes) -> Bytes,
        now: Duration,
    ) -> Result<(Running, Vec<Grant>), PoolError> {
        let ended = self.running.remove(&job).ok_or(PoolError::NotRunning(job))?;
        self.recallable.remove(&job);
        let held = now.saturating_sub(ended.started);
        self.tenants.release(ended.job.tenant);
        self.tenants.settle(ended.job.tenant, ended.paid, held);
        self.tenants.learn(ended.job.accelerator, processed(ended.job.size), held);
        let released = self.slots.release(ended.node, ended.slot, Holder::Job(ended.place));
        Ok((ended, self.offer_freed(ended.node, released, now)))
    }

    /// Offers a slot that has become free, if it stays in the pool, and then all idle slots.
    pub(super) fn offer_freed(
        &mut self,
        node: NodeIndex,
        released: Option<Released>,
        now: Duration,
    ) -> Vec<Grant> {
        self.waiting.advance(now);
        let first = match released {
            Some(Released::Idle(class)) => self.offer(node, class, Skips::Counted, now),
            Some(Released::Left(class)) => {
                self.slots_changed(node, class, now);
                None
            }
            None => None,
        };
        let mut grants: Vec<Grant> = first.into_iter().collect();
        grants.extend(self.wake(now));
        grants
    }

    /// Offers all idle slots that jobs may take, those of the calmest nodes first.
    pub(super) fn offer_idle(&mut self, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        for (_, node, class) in self.slots.calmest_first(|class| self.is_wanted_by_job(class)) {
            while let Some(grant) = self.offer(node, class, Skips::Uncounted, now) {
                grants.push(grant);
            }
        }
        grants
    }

    /// Offers an idle slot to all waiting jobs.
    fn offer(&mut self, node: NodeIndex, class: SlotClass, skips: Skips, now: Duration) -> Option<Grant> {
        if self.bundles.keeps(class) || !self.slots.takes_jobs(class) || !self.slots.is_idle(node, class) {
            return None;
        }
        let remote = self.slots.remote(node, self.contention());
        let long_enough = LongEnough { skips: self.policy.fit.skips(), now };
        let offer = Offer { node, class, remote, long_enough };
        let rank = self.choose(offer, skips)?;
        let waiting = self.take(rank.job)?;
        self.start(&waiting, node, class, now)
    }

    /// Chooses the tenant whose turn it is among those with a job that fits, and its first job. If no job fits at all,
    /// the policy says whether one gets the slot nevertheless.
    fn choose(&mut self, offer: Offer, skips: Skips) -> Option<Rank> {
        let fit = self.policy.fit;
        if let Some(turn) = self.turn_holder(offer, |next| fit.fitting(next)) {
            self.skip(&turn, offer, skips);
            return fit.fitting(&turn.next);
        }
        let (mut fitting, mut others) = (Vec::new(), Vec::new());
        for tenant in self.tenants_that_may_fit(offer) {
            let next = self.waiting.candidates(tenant, offer);
            match fit.fitting(&next) {
                Some(rank) => fitting.push(self.turn(tenant, rank, next)),
                None => others.push(tenant),
            }
        }
        let chosen = self.tenants.choose(&fitting);
        // The slot was remote for all jobs of the tenants without a job that fits.
        for tenant in others {
            self.skip_all(tenant, offer, skips);
        }
        let Some(chosen) = chosen else { return self.choose_nevertheless(offer) };
        self.skip(&chosen, offer, skips);
        fit.fitting(&chosen.next)
    }

    /// Chooses for a slot that no job fits.
    fn choose_nevertheless(&mut self, offer: Offer) -> Option<Rank> {
        let fit = self.policy.fit;
        if fit.keeps_idle() {
            return None;
        }
        if let Some(turn) = self.turn_holder(offer, |next| fit.otherwise(next)) {
            return fit.otherwise(&turn.next);
        }
        let mut turns = Vec::new();
        for tenant in self.waiting.tenants_for(offer.class).filter(|tenant| self.may_start(*tenant)) {
            let next = self.waiting.candidates(tenant, offer);
            turns.extend(fit.otherwise(&next).map(|rank| self.turn(tenant, rank, next)));
        }
        fit.otherwise(&self.tenants.choose(&turns)?.next)
    }

    /// The tenant whose turn it is, if `pick` finds a job of it and its turn pays for the job.
    fn turn_holder(
        &mut self,
        offer: Offer,
        pick: impl Fn(&Candidates) -> Option<Rank>,
    ) -> Option<Turn<Candidates>> {
        let tenant = self.tenants.turn().filter(|turn| self.may_start(*turn))?;
        let next = self.waiting.candidates(tenant, offer);
        let turn = self.turn(tenant, pick(&next)?, next);
        self.tenants.can_pay(tenant, turn.price).then_some(turn)
    }

    fn turn(&self, tenant: TenantId, rank: Rank, next: Candidates) -> Turn<Candidates> {
        Turn { tenant, price: self.price_of(rank), next }
    }

    /// The tenants that may have a job that fits. Where the node takes no remote job, these are the tenants with local
    /// jobs, which are few.
    fn tenants_that_may_fit(&self, offer: Offer) -> Vec<TenantId> {
        let may_hold = |tenant: &TenantId| self.may_start(*tenant);
        match offer.remote {
            RemoteJobs::Refused => self.waiting.tenants_at(offer.node).filter(may_hold).collect(),
            RemoteJobs::Taken => self.waiting.tenants_for(offer.class).filter(may_hold).collect(),
        }
    }

    fn price_of(&self, rank: Rank) -> i64 {
        let job = self.waiting.get(rank.job);
        job.map_or(1, |waiting| self.tenants.price(waiting.job.accelerator, waiting.job.size))
    }

    fn skip(&mut self, turn: &Turn<Candidates>, offer: Offer, skips: Skips) {
        if skips == Skips::Counted {
            self.waiting.skip(turn.tenant, offer, turn.next.first_that_fits());
        }
    }

    fn skip_all(&mut self, tenant: TenantId, offer: Offer, skips: Skips) {
        if skips == Skips::Counted {
            self.waiting.skip(tenant, offer, None);
        }
    }
}

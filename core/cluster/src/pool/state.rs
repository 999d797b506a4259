//! The state of a pool: its slots, its waiting jobs and its running jobs.
//!
//! Each call that changes the pool returns the jobs that the caller must start now. A slot that becomes free goes to the
//! tenant whose turn it is among those with a job that fits; the policy orders a tenant's jobs. With one tenant the
//! decisions are those of P-4: `tests/paper.rs` compares them with the paper's algorithm, written as it is printed.

mod bundling;
mod granting;
mod group_jobs;
mod rejoining;

use super::bundles::Bundles;
use super::jobs::{Served, WaitingJobs};
use super::policy::{Contention, Fit, PoolPolicy};
use super::slots::{Holder, Slots};
use super::tenants::{Paid, QuotaError, TenantRules, Tenants};
use super::{
    AcceleratorId, Arrival, Bytes, ClassCount, ClassSet, Grant, Home, Job, JobId, NodeIndex, Place,
    SlotClass, SlotNumber, TenantId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use rejoining::{Entry, Quotas};

/// The slots of a set of nodes and the jobs that use or want them.
#[derive(Debug)]
pub struct Pool {
    policy: PoolPolicy,
    slots: Slots,
    waiting: WaitingJobs,
    bundles: Bundles,
    running: BTreeMap<JobId, Running>,
    /// Running jobs that have no right to their slots while others wait.
    recallable: BTreeSet<JobId>,
    /// Number of each tenant's waiting jobs of groups, which are not the pool's to order.
    of_groups: BTreeMap<TenantId, usize>,
    tenants: Tenants,
    /// Number of jobs that were submitted.
    arrivals: u64,
    most_waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    job: Job,
    arrival: Arrival,
    node: NodeIndex,
    slot: SlotNumber,
    class: SlotClass,
    place: Place,
    started: Duration,
    paid: Paid,
}

/// The reason why a job is refused or cannot finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A job with this id waits or runs already.
    #[error("job {} is known already", .0.0)]
    Known(JobId),
    /// The job does not run.
    #[error("job {} does not run", .0.0)]
    NotRunning(JobId),
    /// The job could never start: the policy gives it no slot of this pool.
    #[error("no slot of the pool could ever run job {}", .0.0)]
    NoSlot(JobId),
    /// The maximum number of jobs waits already.
    #[error("{0} jobs wait already: try again later")]
    Full(usize),
    /// A quota of the job's tenant.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

/// Whether a running job uses its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The job has tasks.
    Used,
    /// The job has had no task for a while.
    Unused,
    /// The job has processed more bytes than it has named.
    BeyondSize,
}

impl Pool {
    /// A pool without slots in which at most `most_waiting` jobs wait.
    #[must_use]
    pub fn new(policy: PoolPolicy, most_waiting: usize) -> Self {
        Self {
            policy,
            slots: Slots::default(),
            waiting: WaitingJobs::default(),
            bundles: Bundles::default(),
            running: BTreeMap::new(),
            recallable: BTreeSet::new(),
            of_groups: BTreeMap::new(),
            tenants: Tenants::new(),
            arrivals: 0,
            most_waiting,
        }
    }

    /// A pool of one slot class with the given number of slots per node.
    #[cfg(test)]
    pub(crate) fn with_slots(slots: &[u32], policy: PoolPolicy, most_waiting: usize) -> Self {
        let mut pool = Self::new(policy, most_waiting);
        // The first slot of every node, then the second of every node, so that the first jobs go to different nodes.
        for slot in 0..slots.iter().copied().max().unwrap_or(0) {
            for (node, _) in (0..).zip(slots).filter(|(_, slots)| slot < **slots) {
                pool.slots.add(NodeIndex(node), SlotNumber(slot), SlotClass::default());
            }
        }
        pool
    }

    /// Number of waiting jobs.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.bundles.jobs()
    }

    /// Number of running jobs.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Number of idle slots.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.slots.idle()
    }

    /// Number of remote jobs that run on `node`.
    #[cfg(test)]
    pub(crate) fn remote_running(&self, node: NodeIndex) -> u32 {
        self.slots.remote_jobs(node)
    }

    /// Number of slots that jobs and groups of a tenant hold.
    #[must_use]
    pub fn held(&self, tenant: TenantId) -> u32 {
        self.tenants.held(tenant)
    }

    /// The slots of a class.
    #[must_use]
    pub fn class(&self, class: SlotClass) -> ClassCount {
        self.slots.count(class)
    }

    /// All classes with their slots.
    pub fn classes(&self) -> impl Iterator<Item = (SlotClass, ClassCount)> {
        self.slots.classes()
    }

    /// The slot time that so many bytes are expected to take, in ns.
    #[cfg(test)]
    pub(crate) fn price(&self, accelerator: AcceleratorId, size: Bytes) -> i64 {
        self.tenants.price(accelerator, size)
    }

    /// What a tenant may have.
    #[must_use]
    pub fn tenant_rules(&self, tenant: TenantId) -> TenantRules {
        self.tenants.rules(tenant)
    }

    /// Sets what a tenant may have. Jobs that wait already and slots that are held stay.
    pub fn set_tenant_rules(&mut self, tenant: TenantId, rules: TenantRules, now: Duration) -> Vec<Grant> {
        self.tenants.set_rules(tenant, rules);
        self.wake(now)
    }

    /// Adds an idle slot. A slot that the pool has already stays as it is.
    pub fn add_slot(
        &mut self,
        node: NodeIndex,
        slot: SlotNumber,
        class: SlotClass,
        now: Duration,
    ) -> Vec<Grant> {
        self.slots.add(node, slot, class);
        self.slots_changed(node, class, now);
        self.wake(now)
    }

    /// Takes a slot out of the pool: at once if it is idle, else when its job or group releases it.
    pub fn remove_slot(&mut self, node: NodeIndex, slot: SlotNumber, now: Duration) {
        if let Some(class) = self.slots.remove(node, slot) {
            self.slots_changed(node, class, now);
        }
    }

    /// Sets the accelerator whose bitstream a slot has. It breaks ties between slots and never orders jobs.
    pub fn set_resident(&mut self, node: NodeIndex, slot: SlotNumber, resident: Option<AcceleratorId>) {
        self.slots.set_resident(node, slot, resident);
    }

    /// Sets the maximum number of slots of a class that jobs may hold. The others are for groups.
    pub fn set_most_jobs(&mut self, class: SlotClass, most: u32, now: Duration) -> Vec<Grant> {
        self.slots.set_most_jobs(class, most);
        self.wake(now)
    }

    /// Adds a job. The job starts now if a grant is returned, and waits otherwise.
    ///
    /// # Errors
    /// [`PoolError`]; the pool is unchanged then.
    pub fn submit(&mut self, job: Job, now: Duration) -> Result<Option<Grant>, PoolError> {
        self.enter(job, Entry::new(now), now)
    }

    /// Ends a running job and returns the jobs that start in slots that are idle now.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn finish(&mut self, job: JobId, now: Duration) -> Result<Vec<Grant>, PoolError> {
        self.end(job, |size| size, now).map(|(_, grants)| grants)
    }

    /// Ends a recalled job with `rest` bytes left. The job waits again, with its first arrival and its remaining bytes,
    /// whatever the quotas are. Other jobs are offered the slot first: they are why the job was recalled.
    ///
    /// A job that goes on after its last byte is no recalled job: it finishes, and its further bytes are a job of their
    /// own that arrives now. So nobody gets to the front by naming too small a size.
    ///
    /// # Errors
    /// [`PoolError::NotRunning`] if the job does not run.
    pub fn recalled(&mut self, job: JobId, rest: Bytes, now: Duration) -> Result<Vec<Grant>, PoolError> {
        let processed = |size: Bytes| Bytes(size.0.saturating_sub(rest.0));
        let (ended, mut grants) = self.end(job, processed, now)?;
        if rest.0 > 0 {
            let waiting = self.waiting_job(Job { size: rest, ..ended.job }, ended.arrival, now);
            match self.start_in_idle(&waiting, now) {
                Some(grant) => grants.push(grant),
                None => self.queue(waiting, now),
            }
        }
        Ok(grants)
    }

    /// Removes a waiting job, and the others of its bundle if it has one. A running job ends by [`Self::finish`].
    pub fn cancel(&mut self, job: JobId) -> Option<Job> {
        let waiting = self.take(job).map(|waiting| waiting.job);
        waiting.or_else(|| self.bundles.remove(job)?.jobs.into_iter().find(|of| of.id == job))
    }

    /// Returns the waiting jobs that can start in idle slots. Call it at [`Self::next_wake`].
    pub fn wake(&mut self, now: Duration) -> Vec<Grant> {
        let mut grants = self.start_bundles(now);
        if self.waiting.len() > 0 && self.slots.idle() > 0 {
            self.waiting.advance(now);
            grants.extend(self.offer_idle(now));
        }
        grants
    }

    /// The next time at which [`Self::wake`] may start a job or [`Self::given_up`] may name one.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let takes_remote =
            self.contention().is_some_and(|contention| self.slots.any_takes_remote(contention));
        let patience = self.waiting.next_patience_end().filter(|_| takes_remote);
        patience.into_iter().chain(self.waiting.next_given_up()).chain(self.next_wake_of_bundles()).min()
    }

    /// The jobs for which the pool has had no compatible slot for 30 s, and those of bundles for which it has had too few.
    /// They wait until the caller cancels them.
    #[must_use]
    pub fn given_up(&self, now: Duration) -> Vec<JobId> {
        let mut jobs = self.waiting.given_up(now);
        jobs.extend(self.given_up_bundles(now));
        jobs
    }

    /// Says whether a running job uses its slot.
    pub fn set_use(&mut self, job: JobId, slot: Use) {
        match slot {
            Use::Unused | Use::BeyondSize if self.running.contains_key(&job) => self.recallable.insert(job),
            Use::Unused | Use::BeyondSize | Use::Used => self.recallable.remove(&job),
        };
    }

    /// The running jobs that have no right to their slots of the classes that others want. The caller recalls them:
    /// nobody holds what it does not use, or what it has not asked for.
    #[must_use]
    pub fn recallable_in(&self, wanted: impl Fn(SlotClass) -> bool) -> Vec<JobId> {
        let is_wanted = |job: &&JobId| self.running.get(job).is_some_and(|job| wanted(job.class));
        self.recallable.iter().filter(is_wanted).copied().collect()
    }

    /// Whether a waiting job could use a slot of the class.
    #[must_use]
    pub fn is_wanted(&self, class: SlotClass) -> bool {
        self.is_wanted_by_job(class) || self.is_wanted_by_bundle(class)
    }

    /// Takes an idle slot of the class for a group of the tenant.
    pub fn take_for_group(
        &mut self,
        class: SlotClass,
        tenant: TenantId,
        accelerator: AcceleratorId,
    ) -> Option<(NodeIndex, SlotNumber)> {
        if !self.tenants.may_hold(tenant, 1) {
            return None;
        }
        let node = self.slots.idle_for_group(class, accelerator)?;
        let slot = self.slots.take(node, class, accelerator, Holder::Group)?;
        self.tenants.hold(tenant);
        Some((node, slot))
    }

    /// Makes a slot idle that a group of the tenant held.
    pub fn release_from_group(
        &mut self,
        tenant: TenantId,
        node: NodeIndex,
        slot: SlotNumber,
        now: Duration,
    ) -> Vec<Grant> {
        self.tenants.release(tenant);
        let released = self.slots.release(node, slot, Holder::Group);
        self.offer_freed(node, released, now)
    }

    /// Whether a job is new to the pool, and could start some time.
    fn check_new(&self, job: &Job) -> Result<(), PoolError> {
        if self.waiting.contains(job.id)
            || self.bundles.contains(job.id)
            || self.running.contains_key(&job.id)
        {
            return Err(PoolError::Known(job.id));
        }
        if self.policy.fit == Fit::LocalOnly && self.slots.home(job.home, job.classes) == Home::Bare {
            return Err(PoolError::NoSlot(job.id));
        }
        Ok(())
    }

    /// Whether so many more jobs of so many bytes may wait.
    fn admit_jobs(&self, tenant: TenantId, count: usize, size: Bytes) -> Result<(), PoolError> {
        let waiting = self.waiting() + self.of_groups.values().sum::<usize>();
        if waiting + count > self.most_waiting {
            return Err(PoolError::Full(waiting));
        }
        let (jobs, bytes) = self.waiting.of_tenant(tenant);
        let (of_bundles, bytes_of_bundles) = self.bundles.of_tenant(tenant);
        let jobs = jobs + of_bundles + self.group_jobs(tenant);
        let bytes = bytes.saturating_add(bytes_of_bundles);
        Ok(self.tenants.rules(tenant).admit((jobs, count), bytes, size)?)
    }

    fn contention(&self) -> Option<Contention> {
        match self.policy.fit {
            Fit::ResourceAware(rules) => Some(rules.contention),
            Fit::Anyone(_) | Fit::LocalOnly => None,
        }
    }

    /// A node got or lost a slot of a class: jobs may have a home, or a compatible slot, that they did not have before.
    fn slots_changed(&mut self, node: NodeIndex, class: SlotClass, now: Duration) {
        let slots = &self.slots;
        self.waiting.set_home(node, |classes| slots.home(node, classes), &self.policy, now);
        // Only the first and the last slot of a class change whether jobs have a compatible one.
        if slots.count(class).slots <= 1 {
            self.waiting.set_served(|classes| served(slots, classes), now);
        }
    }
}

fn served(slots: &Slots, classes: ClassSet) -> Served {
    if slots.any(classes) { Served::Yes } else { Served::No }
}

#[cfg(test)]
mod tests;

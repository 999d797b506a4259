//! Bundles of jobs: see [`Pool::enter_bundle`].

use super::rejoining::{Entry, Quotas};
use super::{Pool, PoolError};
use crate::pool::bundles::{Bundle, Kept, bytes};
use crate::pool::jobs::NO_SLOT_TIMEOUT;
use crate::pool::tenants::QuotaError;
use crate::pool::{Arrival, Bytes, ClassSet, Grant, Job, JobId, SlotClass, TenantId};
use std::time::Duration;

impl Pool {
    /// Adds jobs that start at the same time or not at all (P-1). All have the tenant, home, accelerator, and classes of the
    /// first one.
    ///
    /// A bundle starts when as many slots are idle as it has jobs. While it waits, jobs take slots that become free; but from
    /// the age at which a job of all its bytes moves to queue 1, idle slots of its classes are kept until there are enough,
    /// and its tenant's other jobs wait. Bundles of a tenant start in the order of their arrival, and one that was kept slots
    /// for makes the tenant's next ones young again.
    ///
    /// # Errors
    /// [`PoolError`]; the pool is unchanged then. Too few slots in the pool are no error, but [`Self::given_up`] names the
    /// jobs after 30 s of that.
    pub fn enter_bundle(
        &mut self,
        jobs: Vec<Job>,
        entry: Entry,
        now: Duration,
    ) -> Result<Vec<Grant>, PoolError> {
        let Some(first) = jobs.first().copied() else { return Ok(Vec::new()) };
        for job in &jobs {
            self.check_new(job)?;
        }
        let (size, rules) = (jobs.len(), self.tenants.rules(first.tenant));
        if size > rules.held_slots as usize {
            let wanted = u32::try_from(size).unwrap_or(u32::MAX);
            return Err(QuotaError::HeldSlots { wanted, quota: rules.held_slots }.into());
        }
        let is_first = self.bundles.first(first.tenant).is_none();
        let starts = is_first && self.has_room(first.tenant, first.classes, size, self.bundles.kept());
        if !starts && entry.quotas == Quotas::Apply {
            self.admit_jobs(first.tenant, size, Bytes(bytes(&jobs)))?;
        }
        let arrival = Arrival { at: entry.since.min(now), number: self.arrivals };
        self.arrivals += 1;
        let age = self.policy.old_age(Bytes(bytes(&jobs)));
        self.bundles.insert(jobs, arrival, age);
        Ok(self.start_bundles(now))
    }

    /// Starts the bundles for which there are enough idle slots, and keeps slots for those that are old.
    pub(super) fn start_bundles(&mut self, now: Duration) -> Vec<Grant> {
        let mut firsts: Vec<(Arrival, TenantId)> =
            self.bundles.firsts().map(|(tenant, first)| (first.arrival, tenant)).collect();
        firsts.sort_unstable();
        let (mut grants, mut kept) = (Vec::new(), Kept::default());
        for (_, tenant) in firsts {
            self.age_first(tenant, now);
            while self.can_start_first(tenant, kept.classes)
                && let Some(bundle) = self.bundles.start(tenant, now)
            {
                self.start_bundle(&bundle, kept.classes, now, &mut grants);
                self.age_first(tenant, now);
            }
            let Some(first) = self.bundles.first(tenant).filter(|first| first.is_old) else { continue };
            if self.is_possible(first) {
                if self.tenants.may_hold(tenant, first.size()) {
                    kept.classes = kept.classes.and(first.classes);
                }
                kept.tenants.insert(tenant);
            }
        }
        self.bundles.set_kept(kept);
        grants
    }

    /// The next time at which a bundle is old, or given up.
    pub(super) fn next_wake_of_bundles(&self) -> Option<Duration> {
        let next = |(tenant, first): (TenantId, &Bundle)| {
            let old_from = self.bundles.old_from(tenant).filter(|_| !first.is_old);
            old_from.into_iter().chain(first.given_up_at)
        };
        self.bundles.firsts().flat_map(next).min()
    }

    /// The jobs of bundles for which the pool has had too few slots for 30 s.
    pub(super) fn given_up_bundles(&self, now: Duration) -> impl Iterator<Item = JobId> {
        let is_over = move |first: &Bundle| first.given_up_at.is_some_and(|at| at <= now);
        let firsts = self.bundles.firsts().filter(move |(_, first)| is_over(first));
        firsts.flat_map(|(_, first)| first.jobs.iter().map(|job| job.id))
    }

    /// Whether a bundle waits for slots of the class. A young one does only where groups alone keep it from them.
    pub(super) fn is_wanted_by_bundle(&self, class: SlotClass) -> bool {
        self.bundles.firsts().any(|(tenant, first)| {
            let free_of_jobs = || {
                let (most, held) = self.slots.most_and_held(first.classes);
                first.size() <= most.saturating_sub(held)
            };
            first.classes.contains(class)
                && self.tenants.may_hold(tenant, first.size())
                && if first.is_old { self.is_possible(first) } else { free_of_jobs() }
        })
    }

    /// Whether bundles wait.
    #[must_use]
    pub fn has_bundles(&self) -> bool {
        self.bundles.jobs() > 0
    }

    /// Sets the maximum number of slots of a class that jobs could hold if groups gave back what they have no right to.
    pub fn set_most_jobs_that_wait(&mut self, class: SlotClass, most: u32) {
        self.slots.set_most_jobs_that_wait(class, most);
    }

    /// Whether the idle slots of a class are kept for a bundle that has waited long.
    #[must_use]
    pub fn is_kept(&self, class: SlotClass) -> bool {
        self.bundles.keeps(class)
    }

    /// Number of idle slots of these classes.
    #[must_use]
    pub fn idle_for_jobs(&self, classes: ClassSet) -> usize {
        self.slots.idle_for_jobs(classes)
    }

    /// Whether jobs may ever hold as many slots as the bundle needs, beside the groups that are open now.
    fn is_possible(&self, bundle: &Bundle) -> bool {
        bundle.size() <= self.slots.most_and_held(bundle.classes).0
    }

    fn has_room(&self, tenant: TenantId, classes: ClassSet, size: usize, kept: ClassSet) -> bool {
        self.tenants.may_hold(tenant, size) && self.slots.idle_for_jobs(classes.without(kept)) >= size
    }

    fn can_start_first(&self, tenant: TenantId, kept: ClassSet) -> bool {
        let first = self.bundles.first(tenant);
        first.is_some_and(|first| self.has_room(tenant, first.classes, first.size(), kept))
    }

    /// Starts a bundle for which there are enough idle slots: at home, and else where the fewest remote jobs run.
    fn start_bundle(&mut self, bundle: &Bundle, kept: ClassSet, now: Duration, grants: &mut Vec<Grant>) {
        let classes = bundle.classes.without(kept);
        for job in &bundle.jobs {
            let waiting = self.waiting_job(*job, bundle.arrival, now);
            let at_home = self.slots.idle_at(job.home, classes).map(|class| (job.home, class));
            let place = at_home.or_else(|| self.slots.calmest(classes, job.accelerator));
            grants.extend(place.and_then(|(node, class)| self.start(&waiting, node, class, now)));
        }
    }

    /// Notes whether the first bundle of a tenant is old, and whether the pool has too few slots for it.
    fn age_first(&mut self, tenant: TenantId, now: Duration) {
        let is_old = self.bundles.old_from(tenant).is_some_and(|at| at <= now);
        let Some(first) = self.bundles.first_mut(tenant) else { return };
        first.is_old = is_old;
        let is_served = self.slots.all(first.classes) >= first.size();
        first.given_up_at = match first.given_up_at {
            _ if is_served => None,
            None => Some(now.saturating_add(NO_SLOT_TIMEOUT)),
            at => at,
        };
    }
}

//! Waiting bundles: jobs of a tenant that start at the same time or not at all.
//!
//! A tenant's bundles start in the order of their arrival, so that decisions look at the first bundle of each tenant only.

use super::{Arrival, ClassSet, Job, JobId, SlotClass, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The waiting bundles of all tenants, and what is kept for the old ones.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    tenants: BTreeMap<TenantId, TenantBundles>,
    /// Tenant and arrival of each job's bundle.
    of_job: BTreeMap<JobId, (TenantId, Arrival)>,
    /// When an old bundle of a tenant started last.
    last_old: BTreeMap<TenantId, Duration>,
    kept: Kept,
}

/// What jobs may not take, for old bundles are to have it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The idle slots of these classes.
    pub(super) classes: ClassSet,
    /// The quotas of these tenants.
    pub(super) tenants: BTreeSet<TenantId>,
}

/// The waiting bundles of a tenant.
#[derive(Debug, Default)]
struct TenantBundles {
    bundles: BTreeMap<Arrival, Bundle>,
    jobs: usize,
    bytes: u64,
}

/// A bundle that waits.
#[derive(Debug)]
pub(super) struct Bundle {
    /// All have the same home, accelerator, and classes.
    pub(super) jobs: Vec<Job>,
    pub(super) classes: ClassSet,
    pub(super) arrival: Arrival,
    /// Age at which the bundle is old; `None`: never.
    age: Option<Duration>,
    pub(super) is_old: bool,
    /// When the bundle is given up, if the pool has fewer slots than it needs.
    pub(super) given_up_at: Option<Duration>,
}

impl Bundles {
    /// Number of jobs.
    pub(super) fn jobs(&self) -> usize {
        self.of_job.len()
    }

    /// Number and bytes of the jobs of a tenant.
    pub(super) fn of_tenant(&self, tenant: TenantId) -> (usize, u64) {
        self.tenants.get(&tenant).map_or((0, 0), |of| (of.jobs, of.bytes))
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.of_job.contains_key(&job)
    }

    /// Adds a bundle, which is old at this age.
    pub(super) fn insert(&mut self, jobs: Vec<Job>, arrival: Arrival, age: Option<Duration>) {
        let Some(first) = jobs.first().copied() else { return };
        self.of_job.extend(jobs.iter().map(|job| (job.id, (first.tenant, arrival))));
        let of_tenant = self.tenants.entry(first.tenant).or_default();
        of_tenant.jobs += jobs.len();
        of_tenant.bytes = of_tenant.bytes.saturating_add(bytes(&jobs));
        let classes = first.classes;
        let bundle = Bundle { jobs, classes, arrival, age, is_old: false, given_up_at: None };
        of_tenant.bundles.insert(arrival, bundle);
    }

    /// Removes the bundle of a job.
    pub(super) fn remove(&mut self, job: JobId) -> Option<Bundle> {
        let (tenant, arrival) = *self.of_job.get(&job)?;
        let of_tenant = self.tenants.get_mut(&tenant)?;
        let bundle = of_tenant.bundles.remove(&arrival)?;
        of_tenant.jobs -= bundle.jobs.len();
        of_tenant.bytes = of_tenant.bytes.saturating_sub(bytes(&bundle.jobs));
        if of_tenant.bundles.is_empty() {
            self.tenants.remove(&tenant);
        }
        for job in &bundle.jobs {
            self.of_job.remove(&job.id);
        }
        Some(bundle)
    }

    /// Removes the first bundle of a tenant, which starts.
    pub(super) fn start(&mut self, tenant: TenantId, now: Duration) -> Option<Bundle> {
        let first = self.first(tenant)?.jobs.first()?.id;
        let bundle = self.remove(first)?;
        if bundle.is_old {
            self.last_old.insert(tenant, now);
        }
        Some(bundle)
    }

    pub(super) fn first(&self, tenant: TenantId) -> Option<&Bundle> {
        self.tenants.get(&tenant)?.bundles.values().next()
    }

    pub(super) fn first_mut(&mut self, tenant: TenantId) -> Option<&mut Bundle> {
        self.tenants.get_mut(&tenant)?.bundles.values_mut().next()
    }

    /// The first bundle of each tenant.
    pub(super) fn firsts(&self) -> impl Iterator<Item = (TenantId, &Bundle)> {
        self.tenants.iter().filter_map(|(tenant, of)| Some((*tenant, of.bundles.values().next()?)))
    }

    /// When the first bundle of a tenant is old: at its age, which counts from the start of the tenant's former old bundle
    /// if that was later than the arrival. So a tenant with many bundles has others wait for one of them at a time.
    pub(super) fn old_from(&self, tenant: TenantId) -> Option<Duration> {
        let Bundle { arrival, age, .. } = self.first(tenant)?;
        let since = self.last_old.get(&tenant).copied().unwrap_or_default().max(arrival.at);
        age.map(|age| since.saturating_add(age))
    }

    pub(super) fn set_kept(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Classes whose idle slots are kept for old bundles.
    pub(super) fn kept(&self) -> ClassSet {
        self.kept.classes
    }

    pub(super) fn keeps(&self, class: SlotClass) -> bool {
        self.kept.classes.contains(class)
    }

    /// Whether the tenant's quota is kept for an old bundle.
    pub(super) fn keeps_quota(&self, tenant: TenantId) -> bool {
        self.kept.tenants.contains(&tenant)
    }
}

impl Bundle {
    /// Number of slots.
    pub(super) fn size(&self) -> usize {
        self.jobs.len()
    }
}

/// Bytes of all jobs.
pub(super) fn bytes(jobs: &[Job]) -> u64 {
    jobs.iter().fold(0, |bytes, job| bytes.saturating_add(job.size.0))
}

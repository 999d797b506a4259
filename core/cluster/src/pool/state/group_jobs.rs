//! Jobs of groups that wait: the pool does not order them, and they count for the quotas of waiting jobs as all others.

use super::{Pool, PoolError};
use crate::pool::{Bytes, TenantId};

impl Pool {
    /// A job of a group waits.
    pub fn add_group_job(&mut self, tenant: TenantId) {
        *self.of_groups.entry(tenant).or_default() += 1;
    }

    /// A job of a group does not wait any more.
    pub fn remove_group_job(&mut self, tenant: TenantId) {
        if let Some(jobs) = self.of_groups.get_mut(&tenant) {
            *jobs -= 1;
            if *jobs == 0 {
                self.of_groups.remove(&tenant);
            }
        }
    }

    /// Whether a job of a group that was added last may wait.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn admit_group_job(&self, tenant: TenantId) -> Result<(), PoolError> {
        self.admit_jobs(tenant, 0, Bytes(0))
    }

    /// Number of the tenant's waiting jobs of groups.
    #[must_use]
    pub fn group_jobs(&self, tenant: TenantId) -> usize {
        self.of_groups.get(&tenant).copied().unwrap_or(0)
    }
}

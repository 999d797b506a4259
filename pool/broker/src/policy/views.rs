//! What people and metrics see of the policy.

use super::{Job, Policy, Stage};
use fpga_cluster::pool::TenantId;
use fpga_pool_api::v1;
use std::collections::BTreeMap;

impl Policy {
    /// The classes of slots.
    #[must_use]
    pub fn class_views(&self) -> Vec<v1::SlotClass> {
        let classes = self.pool.pool().classes().filter_map(|(class, count)| {
            let kind = self.kinds.get(super::class_index(class))?;
            Some(v1::SlotClass {
                kind: kind.kind.as_ref().to_owned(),
                region: kind.region.as_deref().unwrap_or_default().to_owned(),
                slots: count.slots,
                jobs: count.jobs,
                groups: count.groups,
            })
        });
        classes.collect()
    }

    /// What tenants have, of those for which `sees` is true.
    #[must_use]
    pub fn tenant_views(&self, sees: impl Fn(&str) -> bool) -> Vec<v1::TenantUse> {
        let mut waiting: BTreeMap<TenantId, u64> = BTreeMap::new();
        let waits = |job: &&Job| job.stage != Stage::Granted;
        for job in self.jobs.values().filter(waits) {
            *waiting.entry(job.tenant).or_default() += 1;
        }
        let tenants = self.tenants.iter().filter(|(_, name)| sees(name)).map(|(number, name)| {
            let tenant = TenantId(number);
            v1::TenantUse {
                tenant: name.to_owned(),
                waiting: waiting.get(&tenant).copied().unwrap_or(0),
                held: self.pool.pool().held(tenant),
            }
        });
        tenants.collect()
    }
}

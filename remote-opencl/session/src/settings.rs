//! Rules and quotas of the tenants, which may change while the process runs.

use crate::quota::Quota;
use fpga_board::dispatch::Tenant;
use fpga_board::dispatch::policy::DispatchRules;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The current settings. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    now: Arc<Mutex<Arc<Current>>>,
}

/// The settings at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Current {
    /// The rules of the dispatcher.
    pub rules: DispatchRules,
    /// The quota of tenants without an own entry.
    pub default_quota: Quota,
    /// The quotas of tenants with an own entry.
    pub quotas: BTreeMap<Tenant, Quota>,
}

impl Settings {
    /// Settings with these values.
    #[must_use]
    pub fn new(current: Current) -> Self {
        Self { now: Arc::new(Mutex::new(Arc::new(current))) }
    }

    /// The current values.
    #[must_use]
    pub fn current(&self) -> Arc<Current> {
        self.now.lock().clone()
    }

    /// Replaces the values. Returns whether they differ from the previous ones.
    pub fn replace(&self, current: Current) -> bool {
        let mut now = self.now.lock();
        if **now == current {
            return false;
        }
        *now = Arc::new(current);
        true
    }
}

impl Current {
    /// The quota of a tenant.
    #[must_use]
    pub fn quota(&self, tenant: &Tenant) -> Quota {
        self.quotas.get(tenant).copied().unwrap_or(self.default_quota)
    }
}

//! Quotas of a tenant over all its sessions, and the accounts that enforce them.
//!
//! Each tenant has one account. A [`Charge`] counts on it until it is dropped. Limits are read at each charge, so a
//! changed limit applies to later charges and revokes none. A refused client gets OpenCL's error code.

use crate::governor::{Governor, TenantAccount};
use crate::metrics::{Metrics, Refused};
use crate::quota::Quota;
use crate::settings::Settings;
use fpga_board::dispatch::Tenant;
use fpga_vendor::ClError;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The accounts of all tenants. Clones share them.
#[derive(Debug, Clone)]
pub struct Quotas {
    accounts: Arc<Mutex<BTreeMap<Tenant, Arc<Usage>>>>,
    settings: Settings,
    metrics: Metrics,
    governor: Governor,
}

/// A session's access to its tenant's account. The session counts until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Account(Arc<SessionAccount>);

#[derive(Debug)]
struct SessionAccount {
    quotas: Quotas,
    tenant: Tenant,
    usage: Arc<Usage>,
    /// The charge for the session itself.
    _session: Charge,
}

/// The usage of a tenant.
#[derive(Debug)]
struct Usage {
    /// Bytes that the tenant's sessions make the manager hold.
    bytes: TenantAccount,
    memory: AtomicU64,
    buffers: AtomicU64,
    programs: AtomicU64,
    queued_tasks: AtomicU64,
    sessions: AtomicU64,
}

/// An amount on an account, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    usage: Arc<Usage>,
    what: Resource,
    amount: u64,
}

/// A resource that is counted until it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of buffers, images and shared segments.
    Memory,
    /// Number of buffers and images.
    Buffers,
    /// Number of programs.
    Programs,
    /// Number of tasks that wait or run.
    QueuedTasks,
    /// Number of sessions.
    Sessions,
}

impl Resource {
    fn limit(self, quota: &Quota) -> u64 {
        match self {
            Self::Memory => quota.memory,
            Self::Buffers => quota.buffers,
            Self::Programs => quota.programs,
            Self::QueuedTasks => quota.queued_tasks,
            Self::Sessions => quota.sessions,
        }
    }

    fn refused(self) -> Refused {
        match self {
            Self::Memory => Refused::Memory,
            Self::Buffers => Refused::Buffers,
            Self::Programs => Refused::Programs,
            Self::QueuedTasks => Refused::QueuedTasks,
            Self::Sessions => Refused::Sessions,
        }
    }

    /// OpenCL's error code if the quota is used up.
    #[must_use]
    pub fn error(self) -> ClError {
        match self {
            Self::Memory => ClError::MEM_OBJECT_ALLOCATION_FAILURE,
            Self::Buffers | Self::Programs | Self::QueuedTasks | Self::Sessions => ClError::OUT_OF_RESOURCES,
        }
    }
}

impl Usage {
    fn new(bytes: TenantAccount) -> Self {
        let none = AtomicU64::default;
        Self {
            bytes,
            memory: none(),
            buffers: none(),
            programs: none(),
            queued_tasks: none(),
            sessions: none(),
        }
    }

    fn of(&self, what: Resource) -> &AtomicU64 {
        match what {
            Resource::Memory => &self.memory,
            Resource::Buffers => &self.buffers,
            Resource::Programs => &self.programs,
            Resource::QueuedTasks => &self.queued_tasks,
            Resource::Sessions => &self.sessions,
        }
    }

    fn take(self: &Arc<Self>, what: Resource, amount: u64, limit: u64) -> Option<Charge> {
        let more = |taken: u64| taken.checked_add(amount).filter(|taken| *taken <= limit);
        let taken = self.of(what).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Charge { usage: self.clone(), what, amount })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.of(self.what).fetch_sub(self.amount, Ordering::Relaxed);
    }
}

impl Quotas {
    /// Makes the accounts; no tenant has any usage yet.
    #[must_use]
    pub fn new(settings: Settings, metrics: Metrics, governor: Governor) -> Self {
        Self { accounts: Arc::default(), settings, metrics, governor }
    }

    /// Counts a new session of `tenant`; `None` if the tenant has all the sessions that it may have.
    #[must_use]
    pub fn enter(&self, tenant: &Tenant) -> Option<Account> {
        let limit = self.settings.current().quota(tenant).sessions;
        // The lock is held until the session is counted, so that the account can't be removed in between.
        let mut accounts = self.accounts.lock();
        let new = || Arc::new(Usage::new(self.governor.tenant()));
        let usage = accounts.entry(tenant.clone()).or_insert_with(new).clone();
        let Some(session) = usage.take(Resource::Sessions, 1, limit) else {
            self.metrics.refused(Refused::Sessions);
            return None;
        };
        drop(accounts);
        let place = SessionAccount { quotas: self.clone(), tenant: tenant.clone(), usage, _session: session };
        Some(Account(Arc::new(place)))
    }
}

impl Drop for SessionAccount {
    fn drop(&mut self) {
        let mut accounts = self.quotas.accounts.lock();
        // The map, this place and its charge hold the account. No other holder can appear without the lock.
        if Arc::strong_count(&self.usage) <= 3 {
            accounts.remove(&self.tenant);
        }
    }
}

impl Account {
    /// Charges an amount to the account.
    ///
    /// # Errors
    /// OpenCL's error code if the tenant would exceed its quota. The refusal is counted.
    pub fn charge(&self, what: Resource, amount: u64) -> Result<Charge, ClError> {
        let SessionAccount { quotas, tenant, usage, .. } = &*self.0;
        let limit = what.limit(&quotas.settings.current().quota(tenant));
        usage.take(what, amount, limit).ok_or_else(|| {
            quotas.metrics.refused(what.refused());
            tracing::debug!(tenant = tenant.as_str(), ?what, amount, limit, "A quota refuses");
            what.error()
        })
    }

    /// The account of the bytes that the tenant's sessions make the manager hold.
    #[must_use]
    pub fn bytes(&self) -> &TenantAccount {
        &self.0.usage.bytes
    }

    /// Maximum number of bytes of one bitstream or transfer.
    #[must_use]
    pub fn upload_limit(&self) -> u64 {
        let SessionAccount { quotas, tenant, .. } = &*self.0;
        quotas.settings.current().quota(tenant).upload
    }

    /// Counts an upload that was refused.
    pub fn upload_refused(&self) {
        self.0.quotas.metrics.refused(Refused::Upload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Current;

    fn quotas(quota: Quota) -> Quotas {
        let settings = Settings::new(Current { default_quota: quota, ..Current::default() });
        Quotas::new(settings, Metrics::default(), Governor::unlimited())
    }

    #[test]
    fn a_tenant_that_has_all_its_places_leaves_others_theirs_and_gets_them_back() {
        let quotas = quotas(Quota { sessions: 3, ..Quota::default() });
        let (one, two) = (Tenant::new("one"), Tenant::new("two"));
        let places: Vec<_> = (0..3).map(|_| quotas.enter(&one).unwrap()).collect();
        assert!(quotas.enter(&one).is_none());
        assert!(quotas.enter(&two).is_some());
        drop(places);
        assert!(quotas.enter(&one).is_some());
        assert!(quotas.accounts.lock().is_empty());
    }

    #[test]
    fn all_sessions_of_a_tenant_share_its_quota_and_a_new_limit_counts_from_then_on() {
        let quotas = quotas(Quota { memory: 100, ..Quota::default() });
        let tenant = Tenant::new("one");
        let (first, second) = (quotas.enter(&tenant).unwrap(), quotas.enter(&tenant).unwrap());
        let held = first.charge(Resource::Memory, 60).unwrap();
        assert_eq!(second.charge(Resource::Memory, 41).unwrap_err(), ClError(-4));
        assert_eq!(second.charge(Resource::Memory, u64::MAX).unwrap_err(), ClError(-4));
        let other = quotas.enter(&Tenant::new("two")).unwrap();
        assert!(other.charge(Resource::Memory, 100).is_ok());
        drop(held);
        let held = second.charge(Resource::Memory, 100).unwrap();
        quotas.settings.replace(Current {
            default_quota: Quota { memory: 10, ..Quota::default() },
            ..Current::default()
        });
        assert!(first.charge(Resource::Memory, 1).is_err());
        drop(held);
        assert!(first.charge(Resource::Memory, 10).is_ok());
    }
}

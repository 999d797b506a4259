//! How many sessions each tenant has: one tenant alone can't take all the places.

use crate::dispatcher::Tenant;
use crate::objects::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Most sessions of one tenant.
pub const MAX_SESSIONS: usize = 256;

/// The tenants that have sessions. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tenants {
    sessions: Arc<Mutex<BTreeMap<Tenant, usize>>>,
}

/// A session's place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    tenants: Tenants,
    tenant: Tenant,
}

impl Tenants {
    /// A place for one more session; nothing if the tenant has [`MAX_SESSIONS`].
    #[must_use]
    pub fn enter(&self, tenant: &Tenant) -> Option<Place> {
        let mut sessions = lock(&self.sessions);
        let count = sessions.entry(tenant.clone()).or_default();
        if *count >= MAX_SESSIONS {
            return None;
        }
        *count += 1;
        Some(Place { tenants: self.clone(), tenant: tenant.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sessions = lock(&self.tenants.sessions);
        if let Some(count) = sessions.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_has_all_its_places_leaves_others_theirs_and_gets_them_back() {
        let tenants = Tenants::default();
        let (one, two) = (Tenant::new("one"), Tenant::new("two"));
        let places: Vec<_> = (0..MAX_SESSIONS).map(|_| tenants.enter(&one).unwrap()).collect();
        assert!(tenants.enter(&one).is_none());
        assert!(tenants.enter(&two).is_some());
        drop(places);
        assert!(tenants.enter(&one).is_some());
        assert!(lock(&tenants.sessions).is_empty());
    }
}

//! Metrics by tenant. The first [`MAX_TENANTS`] tenants are counted by name and all others together, so that
//! clients can't make the list long.

use fpga_board::dispatch::Tenant;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Maximum number of tenants that are counted by name.
pub const MAX_TENANTS: usize = 64;

/// Maximum length in bytes of a tenant's name in a label.
const MAX_TENANT_NAME: usize = 128;

/// Label of all other tenants together. No tenant has an empty name.
const OTHER_TENANTS: &str = "";

/// The metrics by tenant.
#[derive(Debug, Clone, Default)]
pub(super) struct Tenants {
    by_name: Arc<Mutex<BTreeMap<Tenant, OfTenant>>>,
    tasks: Family<TenantLabels, Counter>,
    device_seconds: Family<TenantLabels, Counter<f64, AtomicU64>>,
    queue_seconds: Family<TenantLabels, Counter<f64, AtomicU64>>,
}

/// The counters of one tenant.
#[derive(Debug, Clone)]
struct OfTenant {
    tasks: Counter,
    device_seconds: Counter<f64, AtomicU64>,
    queue_seconds: Counter<f64, AtomicU64>,
}

/// Labels of the metrics by tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

impl Tenants {
    pub(super) fn register(&self, registry: &mut Registry) {
        let Tenants { tasks, device_seconds, queue_seconds, .. } = self;
        registry.register("tenant_tasks", "Tasks of a tenant that have ended", tasks.clone());
        registry.register_with_unit(
            "tenant_device",
            "Time in which a tenant held slots, summed over the slots",
            Unit::Seconds,
            device_seconds.clone(),
        );
        registry.register_with_unit(
            "tenant_queue",
            "Time in which tasks of a tenant waited, summed over the tasks",
            Unit::Seconds,
            queue_seconds.clone(),
        );
    }

    /// Counts a task that has ended.
    pub(super) fn task(&self, tenant: &Tenant, waited: Duration, held: Duration) {
        let counters = self.of(tenant);
        counters.tasks.inc();
        counters.queue_seconds.inc_by(waited.as_secs_f64());
        counters.device_seconds.inc_by(held.as_secs_f64());
    }

    fn of(&self, tenant: &Tenant) -> OfTenant {
        let mut by_name = self.by_name.lock();
        if let Some(known) = by_name.get(tenant) {
            return known.clone();
        }
        let named = by_name.len() < MAX_TENANTS && tenant.as_str().len() <= MAX_TENANT_NAME;
        let name = if named { tenant.as_str() } else { OTHER_TENANTS };
        let labels = TenantLabels { tenant: name.to_owned() };
        let counters = OfTenant {
            tasks: self.tasks.get_or_create(&labels).clone(),
            device_seconds: self.device_seconds.get_or_create(&labels).clone(),
            queue_seconds: self.queue_seconds.get_or_create(&labels).clone(),
        };
        if named {
            by_name.insert(tenant.clone(), counters.clone());
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_limit_count_together() {
        let tenants = Tenants::default();
        let second = Duration::from_secs(1);
        for number in 0..1000 {
            tenants.task(&Tenant::new(&format!("uid:{number}")), second, second);
        }
        let mut registry = Registry::default();
        registry.register("tasks", "Tasks", tenants.tasks);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("tasks_total")).count(), MAX_TENANTS + 1);
        assert!(text.contains("tasks_total{tenant=\"\"} 936"), "{text}");
    }
}

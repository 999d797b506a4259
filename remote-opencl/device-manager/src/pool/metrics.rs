//! Metrics of the lent slots.

use fpga_pool_leases::lease::Usage;
use fpga_pool_leases::messages::SlotStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// All states of a slot, as the metrics name them.
const STATES: [&str; 5] = ["free", "reserved", "held", "draining", "bad"];

/// The metrics of the lent slots. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PoolMetrics {
    slots: Family<State, Gauge>,
    /// Whether the manager has a stream to a broker.
    pub(super) broker_connected: Gauge,
    /// Clients that have attached.
    pub(super) leases: Counter,
    /// Clients with a lease that had ended, or had never been.
    pub(super) gone: Counter,
    bytes: Counter,
    actions: Counter,
    busy: Counter<f64, AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

impl PoolMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("fpga_device_manager_pool");
        let metrics = Self::default();
        registry.register("slots", "Slots that are lent to the pool, by their state", metrics.slots.clone());
        registry.register(
            "broker_connected",
            "Whether the manager has a stream to a broker",
            metrics.broker_connected.clone(),
        );
        registry.register("leases", "Leases by which clients have taken a slot", metrics.leases.clone());
        registry.register(
            "leases_gone",
            "Clients that came with a lease that had ended, or had never been",
            metrics.gone.clone(),
        );
        registry.register("bytes", "Bytes that the steps of leases took in", metrics.bytes.clone());
        registry.register("actions", "Steps of leases that ran kernels", metrics.actions.clone());
        registry.register(
            "busy_seconds",
            "Time for which steps of leases that ran kernels occupied lent slots",
            metrics.busy.clone(),
        );
        metrics
    }

    /// Sets the number of slots in each state.
    pub(super) fn set_slots(&self, all: &[SlotStatus]) {
        for state in STATES {
            let count = all.iter().filter(|status| name_of(status) == state).count();
            self.slots.get_or_create(&State { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts what a step has used.
    pub(super) fn step(&self, used: &Usage) {
        self.bytes.inc_by(used.bytes);
        self.actions.inc_by(used.actions);
        self.busy.inc_by(Duration::from(used.busy).as_secs_f64());
    }
}

fn name_of(status: &SlotStatus) -> &'static str {
    match status {
        SlotStatus::Free => "free",
        SlotStatus::Reserved(_) => "reserved",
        SlotStatus::Held(..) => "held",
        SlotStatus::Draining(_) => "draining",
        SlotStatus::Bad => "bad",
    }
}

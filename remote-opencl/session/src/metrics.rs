//! The metrics of a device manager, for `/metrics`.
//!
//! Label values come from enums, except for the names of the first [`MAX_TENANTS`] tenants and of at most [`MAX_WORKLOADS`]
//! workloads.

mod counted;
mod labels;
mod model;
mod tenants;
mod workloads;

pub use counted::Counted;
pub use labels::{BytesLabels, DataPath, Direction, Refused, RefusedLabels, Storage, StorageLabels};
pub use model::ModelMetrics;
pub use tenants::MAX_TENANTS;
pub use workloads::{CountedSession, MAX_WORKLOADS};

use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_traces::tracer::Tracer;
use labels::{DIRECTIONS, PATHS, REFUSALS, STORAGES};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tenants::Tenants;
use workloads::Workloads;

/// Prefix of the names of all metrics except `fpga_task_latency`.
pub const PREFIX: &str = "fpga_device_manager";

/// The metrics of one device manager. Clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Open sessions.
    pub sessions: Gauge,
    /// Sessions whose clients lost their connections and may come back.
    pub sessions_waiting: Gauge,
    /// Times that a client came back to its session.
    pub sessions_resumed: Counter,
    /// Sessions ever opened.
    pub sessions_opened: Counter,
    /// Tasks that have ended.
    pub tasks: Counter,
    /// Time from a task's submission to its end, in seconds.
    pub task_seconds: Histogram,
    /// Tasks that wait for a slot or for earlier tasks of their session.
    pub tasks_waiting: Gauge,
    /// Slots that tasks hold.
    pub slots_in_use: Gauge,
    /// Reconfigurations of a slot.
    pub reconfigurations: Counter,
    /// Time in which a slot was being reconfigured, in seconds.
    pub reconfiguration_seconds: Counter<f64, AtomicU64>,
    /// Time in which a slot was held, in seconds, summed over the slots.
    pub slot_seconds: Counter<f64, AtomicU64>,
    /// Slots of the device.
    pub slots: Gauge,
    /// Time in which a task held slots, in seconds: the rate of its sum is the device's utilisation (B-5).
    pub task_latency: Histogram,
    /// Bytes of buffers and programs that were received or sent.
    pub bytes: Family<BytesLabels, Counter>,
    /// Bytes of buffers that were created, by the place of their storage.
    pub buffer_bytes: Family<StorageLabels, Counter>,
    /// Refusals by quotas.
    pub quota_refusals: Family<RefusedLabels, Counter>,
    /// Sessions that were refused for want of a proved identity.
    pub access_refusals: Counter,
    /// Contexts of the vendor that were destroyed to reconfigure the whole board.
    pub contexts_destroyed: Counter,
    /// Reconfigurations that were refused to sessions.
    pub reconfiguration_refusals: Counter,
    /// Times that changed settings of tenants came into force.
    pub settings_changed: Counter,
    /// Times that a file of tenants' settings or of tokens could not be used.
    pub settings_refusals: Counter,
    /// Running tenant processes.
    pub tenant_processes: Gauge,
    /// Tenant processes that died or violated the protocol.
    pub tenant_processes_died: Counter,
    tenants: Tenants,
    workloads: Workloads,
}

impl Metrics {
    /// Registers all metrics: with the prefix `fpga_device_manager_`, and `fpga_task_latency` with the label
    /// `device`.
    pub fn register(registry: &mut Registry, device: &str) -> Self {
        let latency = Histogram::new(exponential_buckets(16e-6, 2.0, 21));
        registry.sub_registry_with_label(("device".into(), device.to_owned().into())).register(
            "fpga_task_latency",
            "Time in which a task held slots, in seconds, reconfiguration included",
            latency.clone(),
        );
        let registry = registry.sub_registry_with_prefix(PREFIX);
        // From 16 µs, about a kernel that does nothing, to 17 s, about a long video.
        let task_seconds = Histogram::new(exponential_buckets(16e-6, 2.0, 21));
        let metrics = Self {
            sessions: Gauge::default(),
            sessions_waiting: Gauge::default(),
            sessions_resumed: Counter::default(),
            sessions_opened: Counter::default(),
            tasks: Counter::default(),
            task_seconds,
            tasks_waiting: Gauge::default(),
            slots_in_use: Gauge::default(),
            reconfigurations: Counter::default(),
            reconfiguration_seconds: Counter::default(),
            slot_seconds: Counter::default(),
            slots: Gauge::default(),
            task_latency: latency,
            bytes: Family::default(),
            buffer_bytes: Family::default(),
            quota_refusals: Family::default(),
            access_refusals: Counter::default(),
            contexts_destroyed: Counter::default(),
            reconfiguration_refusals: Counter::default(),
            settings_changed: Counter::default(),
            settings_refusals: Counter::default(),
            tenant_processes: Gauge::default(),
            tenant_processes_died: Counter::default(),
            tenants: Tenants::default(),
            workloads: Workloads::default(),
        };
        registry.register("sessions", "Open sessions", metrics.sessions.clone());
        registry.register("sessions_opened", "Sessions ever opened", metrics.sessions_opened.clone());
        registry.register(
            "sessions_waiting",
            "Sessions whose clients lost their connections and may come back",
            metrics.sessions_waiting.clone(),
        );
        registry.register(
            "sessions_resumed",
            "Times that a client came back to its session",
            metrics.sessions_resumed.clone(),
        );
        registry.register("tasks", "Tasks that have ended", metrics.tasks.clone());
        registry.register_with_unit(
            "task",
            "From a task's submission to its end",
            Unit::Seconds,
            metrics.task_seconds.clone(),
        );
        registry.register(
            "tasks_waiting",
            "Tasks that wait for a slot or for their session's earlier ones",
            metrics.tasks_waiting.clone(),
        );
        registry.register("slots_in_use", "Slots that tasks hold", metrics.slots_in_use.clone());
        registry.register("reconfigurations", "Reconfigurations of a slot", metrics.reconfigurations.clone());
        registry.register_with_unit(
            "reconfiguration",
            "Time in which a slot was being reconfigured",
            Unit::Seconds,
            metrics.reconfiguration_seconds.clone(),
        );
        registry.register_with_unit(
            "slot",
            "Time in which a slot was held, summed over the slots",
            Unit::Seconds,
            metrics.slot_seconds.clone(),
        );
        registry.register_with_unit(
            "data",
            "Contents of buffers and programs",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        metrics.register_sharing(registry);
        metrics
    }

    /// Registers the metrics about sharing the device.
    fn register_sharing(&self, registry: &mut Registry) {
        registry.register("slots", "Slots of the device", self.slots.clone());
        registry.register_with_unit(
            "buffer",
            "Buffers that were created, by where they lie",
            Unit::Bytes,
            self.buffer_bytes.clone(),
        );
        registry.register("quota_refusals", "What quotas of tenants refused", self.quota_refusals.clone());
        // The first refusal is an increase, too, which Prometheus sees only from a sample with 0 on.
        for quota in REFUSALS {
            drop(self.quota_refusals.get_or_create(&RefusedLabels { quota }));
        }
        registry.register(
            "access_refusals",
            "Sessions refused for want of a proved identity",
            self.access_refusals.clone(),
        );
        registry.register(
            "contexts_destroyed",
            "Contexts of the vendor that reconfigurations of the whole board destroyed and made again",
            self.contexts_destroyed.clone(),
        );
        registry.register(
            "reconfiguration_refusals",
            "Bitstreams that sessions may not have the device reconfigured to",
            self.reconfiguration_refusals.clone(),
        );
        registry.register(
            "settings_refusals",
            "Times that a file of tenants' settings, or of tokens, was found that can't be used",
            self.settings_refusals.clone(),
        );
        registry.register(
            "settings_changes",
            "Times that other policies, shares or quotas came into force",
            self.settings_changed.clone(),
        );
        registry.register("tenant_processes", "Processes of tenants", self.tenant_processes.clone());
        registry.register(
            "tenant_processes_died",
            "Processes of tenants that died, or broke the rules between them and the manager",
            self.tenant_processes_died.clone(),
        );
        self.tenants.register(registry);
        self.workloads.register(registry);
    }

    /// Counts bytes of buffers or programs.
    pub fn count_bytes(&self, direction: Direction, path: DataPath, bytes: u64) {
        self.bytes.get_or_create(&BytesLabels { direction, path }).inc_by(bytes);
    }

    /// Counts a refusal by a quota.
    pub fn refused(&self, quota: Refused) {
        self.quota_refusals.get_or_create(&RefusedLabels { quota }).inc();
    }

    /// Counts the bytes of a created buffer.
    pub fn buffer_created(&self, storage: Storage, bytes: u64) {
        self.buffer_bytes.get_or_create(&StorageLabels { storage }).inc_by(bytes);
    }

    /// The counters that a tenant process sends to the manager, with those of its tracer.
    #[must_use]
    pub fn counted(&self, tracer: &Tracer) -> Counted {
        let bytes = |direction, path| self.bytes.get_or_create(&BytesLabels { direction, path }).get();
        let buffers = |storage| self.buffer_bytes.get_or_create(&StorageLabels { storage }).get();
        Counted {
            bytes: DIRECTIONS.map(|direction| PATHS.map(|path| bytes(direction, path))),
            buffer_bytes: STORAGES.map(buffers),
            refused: REFUSALS.map(|quota| self.quota_refusals.get_or_create(&RefusedLabels { quota }).get()),
            spans_dropped: tracer.dropped(),
            contexts_destroyed: self.contexts_destroyed.get(),
        }
    }

    /// Adds counters of a tenant process, and to this tracer's.
    pub fn add(&self, counted: &Counted, tracer: &Tracer) {
        tracer.dropped_before(counted.spans_dropped);
        self.contexts_destroyed.inc_by(counted.contexts_destroyed);
        for (direction, of_paths) in DIRECTIONS.into_iter().zip(counted.bytes) {
            for (path, bytes) in PATHS.into_iter().zip(of_paths) {
                self.count_bytes(direction, path, bytes);
            }
        }
        for (storage, bytes) in STORAGES.into_iter().zip(counted.buffer_bytes) {
            self.buffer_created(storage, bytes);
        }
        for (quota, times) in REFUSALS.into_iter().zip(counted.refused) {
            self.quota_refusals.get_or_create(&RefusedLabels { quota }).inc_by(times);
        }
    }

    /// Counts a session's tasks for a workload of the tenant, too, until what is returned is dropped.
    #[must_use]
    pub fn session_of(&self, session: SessionId, tenant: &Tenant, workload: &str) -> CountedSession {
        self.workloads.enter(session, tenant, workload)
    }

    /// Counts a task that has ended: the time that it waited, and the time that it held slots.
    pub fn task_of(&self, session: SessionId, tenant: &Tenant, waited: Duration, held: Duration) {
        self.tenants.task(tenant, waited, held);
        self.workloads.task(session, waited, held);
        if !held.is_zero() {
            self.task_latency.observe(held.as_secs_f64());
        }
    }
}

impl Default for Metrics {
    /// Metrics that are not exported.
    fn default() -> Self {
        Self::register(&mut Registry::default(), "")
    }
}

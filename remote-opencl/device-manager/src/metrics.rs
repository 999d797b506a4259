//! What a device manager counts, for `/metrics`.
//!
//! Labels come from enums: no tenant, bitstream or session names.

use crate::store::BitstreamStore;
use fpga_hook::Reporter;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const PREFIX: &str = "fpga_device_manager";

/// Counters of one device manager. Clones count in the same place.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Open sessions.
    pub sessions: Gauge,
    /// Sessions ever opened.
    pub sessions_opened: Counter,
    /// Tasks that have ended.
    pub tasks: Counter,
    /// From a task's submission to its end, in seconds.
    pub task_seconds: Histogram,
    /// Tasks that wait for a slot or for their session's earlier ones.
    pub tasks_waiting: Gauge,
    /// Slots that tasks hold.
    pub slots_in_use: Gauge,
    /// Reconfigurations of a slot.
    pub reconfigurations: Counter,
    /// Time in which a slot was being reconfigured, in seconds.
    pub reconfiguration_seconds: Counter<f64, AtomicU64>,
    /// Time in which a slot was held, in seconds, summed over the slots.
    pub slot_seconds: Counter<f64, AtomicU64>,
    /// Bytes of buffers and programs.
    pub bytes: Family<BytesLabels, Counter>,
}

/// Labels of [`Metrics::bytes`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BytesLabels {
    /// Which way.
    pub direction: Direction,
}

/// The way that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Direction {
    /// From a client.
    Received,
    /// To a client.
    Sent,
}

impl Metrics {
    /// Registers all of them under `fpga_device_manager_`.
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix(PREFIX);
        // 16 µs to 17 s: from a null kernel to a video.
        let task_seconds = Histogram::new(exponential_buckets(16e-6, 2.0, 21));
        let metrics = Self {
            sessions: Gauge::default(),
            sessions_opened: Counter::default(),
            tasks: Counter::default(),
            task_seconds,
            tasks_waiting: Gauge::default(),
            slots_in_use: Gauge::default(),
            reconfigurations: Counter::default(),
            reconfiguration_seconds: Counter::default(),
            slot_seconds: Counter::default(),
            bytes: Family::default(),
        };
        registry.register("sessions", "Open sessions", metrics.sessions.clone());
        registry.register("sessions_opened", "Sessions ever opened", metrics.sessions_opened.clone());
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
        metrics
    }

    /// Counts bytes of buffers and programs.
    pub fn count_bytes(&self, direction: Direction, bytes: u64) {
        self.bytes.get_or_create(&BytesLabels { direction }).inc_by(bytes);
    }
}

/// What others count, asked when somebody looks.
#[derive(Debug)]
pub struct AtScrape {
    /// The store.
    pub store: Arc<BitstreamStore>,
    /// The reporter, where there is a collector.
    pub reporter: Option<Reporter>,
}

impl AtScrape {
    /// Registers them beside [`Metrics`].
    pub fn register(self, registry: &mut Registry) {
        registry.sub_registry_with_prefix(PREFIX).register_collector(Box::new(self));
    }
}

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let bytes = ConstGauge::new(i64::try_from(self.store.bytes()).unwrap_or(i64::MAX));
        let help = "Bitstreams that are kept";
        let store = encoder.encode_descriptor("store", help, Some(&Unit::Bytes), bytes.metric_type())?;
        bytes.encode(store)?;
        let Some(reporter) = &self.reporter else { return Ok(()) };
        let stats = reporter.stats();
        let queued = ConstGauge::new(i64::try_from(stats.queued).unwrap_or(i64::MAX));
        let help = "Events that the collector has not acknowledged";
        let metric = encoder.encode_descriptor("reports_queued", help, None, queued.metric_type())?;
        queued.encode(metric)?;
        for (name, help, value) in [
            ("reports_sent", "Events that the collector has acknowledged", stats.sent),
            ("reports_merged", "Events that found the queue full and went into a sum", stats.merged),
            ("reports_refused", "Events that the collector refused", stats.refused),
            ("report_retries", "Requests to the collector that failed and were tried again", stats.retries),
        ] {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

impl Default for Metrics {
    /// Metrics that nobody reads.
    fn default() -> Self {
        Self::register(&mut Registry::default())
    }
}

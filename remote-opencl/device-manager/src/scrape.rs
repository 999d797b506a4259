//! Metrics that other modules count, read at each scrape.

use crate::memory::{self, Heap};
use fpga_hook::Reporter;
use fpga_session::builds::Builds;
use fpga_session::catalogue::Catalogue;
use fpga_session::health::Health;
use fpga_session::metrics::PREFIX;
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use fpga_session::trace::Trace;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

/// Metrics that other modules count, read at each scrape.
#[derive(Debug)]
pub struct AtScrape {
    /// The store of bitstreams.
    pub store: Arc<BitstreamStore>,
    /// The health of the device.
    pub health: Health,
    /// The builds of programs.
    pub builds: Builds,
    /// The phase of the manager's shutdown.
    pub shutdown: Shutdown,
    /// The names of bitstreams.
    pub catalogue: Arc<Catalogue>,
    /// The reporter; `None` without a collector.
    pub reporter: Option<Reporter>,
    /// The trace.
    pub trace: Trace,
}

impl AtScrape {
    /// Registers the metrics with the prefix `fpga_device_manager_`.
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
        let healthy = ConstGauge::new(i64::from(self.health.fault().is_none()));
        let help = "Whether the device is healthy: 1, or 0";
        let metric = encoder.encode_descriptor("healthy", help, None, healthy.metric_type())?;
        healthy.encode(metric)?;
        let (builds_running, builds_waiting) = self.builds.count();
        for (name, help, value) in [
            ("builds_running", "Programs that are being built", builds_running),
            ("builds_waiting", "Programs that wait to be built", builds_waiting),
            (
                "draining",
                "Whether the manager takes no new sessions and ends with those that it has: 1, or 0",
                usize::from(self.shutdown.is_draining()),
            ),
            (
                "bitstreams_named",
                "Bitstreams that have a name by a file of --bitstreams",
                self.catalogue.len(),
            ),
            ("bitstream_files_refused", "Files of --bitstreams that can't be used", self.catalogue.refused()),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        if let Some(Heap { used, kept }) = memory::heap() {
            for (name, help, bytes) in [
                (
                    "heap_used",
                    "Memory of the manager's own process that is in use, without what is mapped",
                    used,
                ),
                (
                    "heap_kept",
                    "Memory of the manager's own process that was freed and is kept for reuse",
                    kept,
                ),
            ] {
                let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
                let metric =
                    encoder.encode_descriptor(name, help, Some(&Unit::Bytes), gauge.metric_type())?;
                gauge.encode(metric)?;
            }
        }
        if self.trace.is_on() {
            let left_out = ConstCounter::new(self.trace.left_out());
            let help = "Commands and uses of slots that are not in the trace";
            let metric = encoder.encode_descriptor("trace_left_out", help, None, left_out.metric_type())?;
            left_out.encode(metric)?;
        }
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

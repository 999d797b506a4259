//! Metrics of all services, from the calls by which the sources register them.

mod registrations;

use super::markdown::{cell, code, header, row};
use super::sources;
use anyhow::{Result, ensure};
use registrations::{Kind, Metric, Registrations};
use std::collections::BTreeMap;
use std::path::Path;

/// A service, the folders of its sources, and what precedes names where a function gets a registry that has a prefix
/// already: by type, or by the beginning of the file's path.
struct Service {
    name: &'static str,
    folders: &'static [&'static str],
    prefixes: &'static [(&'static str, &'static str)],
}

const SERVICES: [Service; 7] = [
    Service {
        name: "fpga-scheduler-extender",
        folders: &["scheduler-extender/src"],
        prefixes: &[("scheduler-extender/src/ports/metrics.rs", "fpga_extender")],
    },
    Service { name: "fpga-collector", folders: &["collector/src"], prefixes: &[] },
    Service {
        name: "fpga-node-plugin",
        folders: &["node-plugin/src"],
        prefixes: &[
            ("StoreMetrics", "fpga_node_plugin_bitstream_store"),
            ("node-plugin/src/probes.rs", "fpga_node_plugin"),
        ],
    },
    Service {
        name: "fpga-device-manager",
        folders: &["remote-opencl/session/src", "remote-opencl/device-manager/src", "traces/src"],
        prefixes: &[
            ("remote-opencl/session/src/metrics", "fpga_device_manager"),
            ("remote-opencl/device-manager/src/scrape.rs", "fpga_device_manager"),
            ("traces/src/exporter.rs", "fpga_device_manager"),
        ],
    },
    Service {
        name: "fpga-endpoint-picker",
        folders: &["endpoint-picker/src", "traces/src"],
        prefixes: &[("traces/src/exporter.rs", "fpga_picker")],
    },
    Service {
        name: "fpga-registry",
        folders: &["registry/src"],
        prefixes: &[("registry/src/metrics.rs", "fpga_registry")],
    },
    Service {
        name: "fpga-pool",
        folders: &["pool/broker/src"],
        prefixes: &[("pool/broker/src/metrics.rs", "fpga_pool")],
    },
];

/// The chapter of metrics.
pub fn page(repository: &Path) -> Result<String> {
    let mut page = String::from(
        "# Metrics\n\nServices tell their metrics at `/metrics` ([where](http.md)), in the OpenMetrics format. A histogram has the \
         suffixes `_bucket`, `_sum` and `_count`. What a family of labels has never counted is not shown. Recorded metrics and what they \
         are good for: [scaling by requests](../../manifests/examples/autoscaling/README.md).\n",
    );
    for service in SERVICES {
        let mut registrations = Registrations::default();
        for folder in service.folders {
            for source in sources::below(repository, folder)? {
                registrations.read(&source, service.prefixes);
            }
        }
        let metrics = registrations.finish()?;
        ensure!(metrics.len() > 4, "{}: only {} metrics were found", service.name, metrics.len());
        page.push_str(&format!("\n## {}\n\n{}", service.name, header(&["metric", "type", "labels", "what"])));
        let by_name: BTreeMap<String, Metric> =
            metrics.into_iter().map(|metric| (metric.shown_name(), metric)).collect();
        for (name, metric) in by_name {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            page.push_str(&row(&[
                code(&name),
                metric.kind.name().to_owned(),
                labels.join(" "),
                cell(&metric.help),
            ]));
        }
    }
    Ok(page)
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

impl Metric {
    /// The name by which Prometheus knows the metric.
    fn shown_name(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{unit}{suffix}", self.name)
    }
}

//! The port for probes and metrics: plain HTTP.

use crate::plugin::Plugin;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use fpga_bitstream_store::Figures;
use fpga_core::node_state::PluginReport;
use fpga_net::http::{open_metrics, serve_probes};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The metrics of a plugin, from its report.
#[derive(Debug, Default)]
struct Metrics {
    used: Family<OfBoard, Gauge>,
    limit: Family<OfBoard, Gauge>,
    kept_off: Gauge,
    store: StoreMetrics,
}

/// The metrics of the store of bitstreams.
#[derive(Debug, Default)]
struct StoreMetrics {
    bytes: Gauge,
    limit_bytes: Gauge,
    files: Gauge,
    downloads: Counter,
    failures: Counter,
    evictions: Counter,
    fetched_bytes: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBoard {
    board: String,
}

struct Probes {
    plugin: Arc<Plugin>,
    metrics: Metrics,
    registry: Registry,
}

/// Serves until the returned future is dropped.
pub(crate) fn serve(listener: TcpListener, plugin: Arc<Plugin>) -> impl Future<Output = ()> + Send {
    let mut registry = Registry::with_prefix("fpga_node_plugin");
    let metrics = Metrics::register(&mut registry);
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(told))
        .with_state(Arc::new(Probes { plugin, metrics, registry }));
    async move {
        let (_open, stop) = watch::channel(false);
        serve_probes(listener, router, stop).await;
    }
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { used, limit, kept_off, store } = &metrics;
        registry.register("board_containers", "Containers that have the board", used.clone());
        registry.register("board_containers_limit", "Containers that may have the board", limit.clone());
        registry.register(
            "kept_off_controllers",
            "Controllers whose pods the node could not serve, and which it keeps off for a while",
            kept_off.clone(),
        );
        store.register(registry.sub_registry_with_prefix("bitstream_store"));
        metrics
    }

    fn take(&self, report: &PluginReport) {
        self.used.clear();
        self.limit.clear();
        for (board, instances) in &report.boards {
            let board = OfBoard { board: board.clone() };
            self.used.get_or_create(&board).set(instances.used.into());
            self.limit.get_or_create(&board).set(instances.limit.into());
        }
        self.kept_off.set(i64::try_from(report.kept_off.len()).unwrap_or(i64::MAX));
    }
}

impl StoreMetrics {
    fn register(&self, registry: &mut Registry) {
        let Self { bytes, limit_bytes, files, downloads, failures, evictions, fetched_bytes } = self;
        registry.register("bytes", "Bytes of the files of bitstreams on the node", bytes.clone());
        registry.register("limit_bytes", "Bytes that these files may have", limit_bytes.clone());
        registry.register("files", "Bitstreams on the node", files.clone());
        registry.register("downloads", "Bitstreams that were fetched", downloads.clone());
        registry.register(
            "failures",
            "Bitstreams that could not be fetched or had no room",
            failures.clone(),
        );
        registry.register("evictions", "Bitstreams that went for others", evictions.clone());
        registry.register("fetched_bytes", "Bytes that were fetched", fetched_bytes.clone());
    }

    fn take(&self, figures: &Figures) {
        let gauge = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        // The store counts; a counter is brought to its number.
        let counter = |counter: &Counter, value: u64| {
            counter.inc_by(value.saturating_sub(counter.get()));
        };
        gauge(&self.bytes, figures.bytes);
        gauge(&self.limit_bytes, figures.limit_bytes);
        gauge(&self.files, figures.files);
        counter(&self.downloads, figures.downloads);
        counter(&self.failures, figures.failures);
        counter(&self.evictions, figures.evictions);
        counter(&self.fetched_bytes, figures.fetched_bytes);
    }
}

/// Answers if the state can be had: a plugin that is stuck with it gives nobody a board.
async fn healthz(State(probes): State<Arc<Probes>>) -> &'static str {
    drop(probes.plugin.report());
    "ok\n"
}

async fn told(State(probes): State<Arc<Probes>>) -> Response {
    probes.metrics.take(&probes.plugin.report());
    if let Some(library) = &probes.plugin.bitstreams.library {
        probes.metrics.store.take(&library.store.figures());
    }
    open_metrics(&probes.registry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::node_state::Instances;

    #[test]
    fn metrics_tell_of_the_boards_of_the_last_report() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let report = |board: &str, used| PluginReport {
            boards: [(board.to_owned(), Instances { used, limit: 16 })].into(),
            kept_off: ["default/a".to_owned()].into(),
            ..PluginReport::default()
        };
        for (board, used) in [("gone", 1), ("pcie-0", 3)] {
            metrics.take(&report(board, used));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "board_containers{board=\"pcie-0\"} 3",
            "board_containers_limit{board=\"pcie-0\"} 16",
            "kept_off_controllers 1",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("gone"), "{text}");
    }
}

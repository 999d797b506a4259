//! The port for probes and metrics: plain HTTP.

use crate::plugin::Plugin;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use fpga_core::node_state::PluginReport;
use fpga_net::http::{Limits, Port, Server, open_metrics};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::debug;

/// The metrics of a plugin, from its report.
#[derive(Debug, Default)]
struct Metrics {
    used: Family<OfBoard, Gauge>,
    limit: Family<OfBoard, Gauge>,
    kept_off: Gauge,
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
    let server =
        Server::new(Limits::PROBES, |refusal| debug!(refusal = refusal.name(), "A connection was refused"));
    async move {
        let (_open, stop) = watch::channel(false);
        server.serve(Port::Tcp(listener, None), router, stop).await;
    }
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { used, limit, kept_off } = &metrics;
        registry.register("board_containers", "Containers that have the board", used.clone());
        registry.register("board_containers_limit", "Containers that may have the board", limit.clone());
        registry.register(
            "kept_off_controllers",
            "Controllers whose pods the node could not serve, and which it keeps off for a while",
            kept_off.clone(),
        );
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

/// Answers if the state can be had: a plugin that is stuck with it gives nobody a board.
async fn healthz(State(probes): State<Arc<Probes>>) -> &'static str {
    drop(probes.plugin.report());
    "ok\n"
}

async fn told(State(probes): State<Arc<Probes>>) -> Response {
    probes.metrics.take(&probes.plugin.report());
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

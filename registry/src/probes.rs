//! The port of plain HTTP for probes and metrics.

use crate::metrics::Metrics;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use fpga_net::election::Leadership;
use fpga_net::http::{open_metrics, serve_probes};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the port tells.
#[derive(Debug)]
pub struct Probes {
    registry: Registry,
    metrics: Metrics,
    leadership: Leadership,
    ready: AtomicBool,
}

impl Probes {
    /// The `metrics` that `registry` shows, of a replica that is not ready yet.
    #[must_use]
    pub fn new(registry: Registry, metrics: Metrics, leadership: Leadership) -> Arc<Self> {
        Arc::new(Self { registry, metrics, leadership, ready: AtomicBool::new(false) })
    }

    /// Says whether the replica could lead.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Serves until `stop` is true.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        serve_probes(listener, router, stop).await;
    }
}

async fn readyz(State(probes): State<Arc<Probes>>) -> Response {
    if probes.ready.load(Ordering::Relaxed) {
        return "ok\n".into_response();
    }
    let text = "nodes and pods are not known yet, or the registry is about to end\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    probes.metrics.leads.set(probes.leadership.is_held().into());
    open_metrics(&probes.registry)
}

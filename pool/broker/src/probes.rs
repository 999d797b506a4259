//! The port of plain HTTP for probes and metrics.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
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
    ready: AtomicBool,
}

impl Probes {
    /// The metrics that `registry` shows, of a broker that is not ready yet.
    #[must_use]
    pub fn new(registry: Registry) -> Arc<Self> {
        Arc::new(Self { registry, ready: AtomicBool::new(false) })
    }

    /// Says whether the broker is or could become active.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Serves until `stop` is true.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(async |State(probes): State<Arc<Self>>| open_metrics(&probes.registry)))
            .with_state(self);
        serve_probes(listener, router, stop).await;
    }
}

async fn readyz(State(probes): State<Arc<Probes>>) -> Response {
    if probes.ready.load(Ordering::Relaxed) {
        return "ok\n".into_response();
    }
    let text = "the accelerators are not known yet, or the broker is about to end\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

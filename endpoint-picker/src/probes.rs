//! The port for probes and metrics: plain HTTP.

use crate::picker::Picker;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpga_net::http::{Limits, Port, Server, open_metrics};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::debug;

#[derive(Debug)]
struct Probes {
    picker: Arc<Picker>,
    registry: Registry,
}

/// Serves until `stop` is true.
pub async fn serve(
    listener: TcpListener,
    picker: Arc<Picker>,
    registry: Registry,
    stop: watch::Receiver<bool>,
) {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Probes { picker, registry }));
    let server =
        Server::new(Limits::PROBES, |refusal| debug!(refusal = refusal.name(), "A connection was refused"));
    server.serve(Port::Tcp(listener, None), router, stop).await;
}

async fn readyz(State(probes): State<Arc<Probes>>) -> Response {
    if probes.picker.is_ready() {
        return "ok\n".into_response();
    }
    let text = "the functions of the cluster are not known yet, or the picker is about to end\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    probes.picker.metrics.take_census(probes.picker.census());
    open_metrics(&probes.registry)
}

//! The supervisor's `/metrics`, with those of all managers, `/readyz` and `/healthz`.

use super::exposition::Exposition;
use super::probe::{Answer, get as ask};
use super::status::{State, Statuses};
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use fpga_session::metrics::PREFIX;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;
use tracing::debug;

/// Format of the answer to `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Label of the supervisor's own metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBoard {
    board: String,
}

/// The routes.
pub(super) fn app(statuses: Statuses) -> Router {
    let of_metrics = statuses.clone();
    Router::new()
        .route("/metrics", get(|| metrics(of_metrics)))
        .route("/readyz", get(|| async move { ready(&statuses) }))
        .route("/healthz", get(async || "ok\n"))
}

fn ready(statuses: &Statuses) -> (StatusCode, String) {
    let (ready, text) = statuses.readiness();
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

async fn metrics(statuses: Statuses) -> Response {
    let mut exposition = Exposition::default();
    match own(&statuses) {
        Ok(text) => exposition.add(None, &text),
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
    let boards = statuses.boards();
    let answers = boards.iter().map(async |(board, status)| (board, ask(&status.metrics, "/metrics").await));
    for (board, answer) in futures::future::join_all(answers).await {
        match answer {
            Ok(Answer { ok: true, text }) => exposition.add(Some(board), &text),
            // A manager that ends or starts has none; `manager_ready` says so.
            other => debug!(board, ?other, "A manager tells no metrics"),
        }
    }
    ([(CONTENT_TYPE, OPEN_METRICS)], exposition.text()).into_response()
}

/// The supervisor's own metrics.
fn own(statuses: &Statuses) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let of_managers = registry.sub_registry_with_prefix(PREFIX);
    let (ready, restarts) = (Family::<OfBoard, Gauge>::default(), Family::<OfBoard, Counter>::default());
    for (board, status) in statuses.boards() {
        let label = OfBoard { board };
        ready.get_or_create(&label).set(i64::from(status.state == State::Ready));
        restarts.get_or_create(&label).inc_by(status.restarts);
    }
    let failures: Counter = Counter::default();
    failures.inc_by(statuses.discovery_failures());
    of_managers.register("supervised_ready", "Whether the board's manager accepts sessions: 1, or 0", ready);
    of_managers.register(
        "supervised_restarts",
        "Managers of the board that ended without being told to, and were started anew",
        restarts,
    );
    of_managers.register(
        "discovery_failures",
        "Number of times that the devices of the runtime could not be listed",
        failures,
    );
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

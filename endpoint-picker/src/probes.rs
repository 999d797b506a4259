//! The ports of plain HTTP: `--metrics-listen` for probes and Prometheus only, `--read-listen` for people and their
//! tools as well. They change nothing.

use crate::function::FunctionName;
use crate::picker::Picker;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpga_net::http::{open_metrics, serve_probes};
use fpga_net::read_access::{ReadAccess, guarded};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the ports of plain HTTP tell.
#[derive(Debug)]
pub struct Probes {
    picker: Arc<Picker>,
    /// Locked while it is encoded, since figures of functions are put there first.
    registry: Mutex<Registry>,
    /// Mean number of replicas of a function that are recommended.
    replicas_per_function: f64,
}

/// What a port serves.
#[derive(Debug, Clone)]
pub enum Audience {
    /// Probes and metrics.
    Probes,
    /// Probes, metrics, functions, and the last picks. With the check all but probes only for readers who may get the pods in
    /// question.
    People(Option<Arc<ReadAccess>>),
}

impl Probes {
    /// What `picker` tells, and the metrics of `registry`.
    #[must_use]
    pub fn new(picker: Arc<Picker>, registry: Registry, replicas_per_function: f64) -> Arc<Self> {
        Arc::new(Self { picker, registry: Mutex::new(registry), replicas_per_function })
    }

    /// The routes for an audience.
    pub fn router(self: Arc<Self>, audience: Audience) -> Router {
        let health = Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz));
        let of_tenants = Router::new().route("/metrics", get(metrics));
        let of_tenants = match audience {
            Audience::Probes => of_tenants.with_state(Arc::clone(&self)),
            Audience::People(access) => {
                let routes = of_tenants.route("/functions", get(functions));
                let routes = routes.route("/picks/{namespace}/{name}", get(picks));
                guarded(routes.with_state(Arc::clone(&self)), access)
            }
        };
        of_tenants.merge(health.with_state(self))
    }

    /// Serves until `stop` is true.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        audience: Audience,
        stop: watch::Receiver<bool>,
    ) {
        serve_probes(listener, self.router(audience), stop).await;
    }
}

async fn readyz(State(probes): State<Arc<Probes>>) -> Response {
    if probes.picker.is_ready() {
        return "ok\n".into_response();
    }
    let text = "the functions of the cluster are not known yet, or the picker is about to end\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(probes): State<Arc<Probes>>) -> Response {
    let functions = probes.picker.with(|state, now| state.functions(probes.replicas_per_function, now));
    let registry = probes.registry.lock();
    probes.picker.metrics.take_census(probes.picker.census());
    probes.picker.metrics.take_functions(functions);
    open_metrics(&registry)
}

/// All functions with their replicas and demand, as JSON.
async fn functions(State(probes): State<Arc<Probes>>) -> Response {
    json(&probes.picker.with(|state, now| state.functions(probes.replicas_per_function, now)))
}

/// A function with its last picks and why each was made, as JSON.
async fn picks(
    State(probes): State<Arc<Probes>>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let name = FunctionName::new(&namespace, &name);
    let view = probes.picker.with(|state, now| state.picks(&name, probes.replicas_per_function, now));
    match view {
        Some(view) => json(&view),
        None => error(StatusCode::NOT_FOUND, "nobody knows this function"),
    }
}

fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, problem),
    }
}

fn error(status: StatusCode, text: impl fmt::Display) -> Response {
    let body = serde_json::json!({ "error": text.to_string() }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

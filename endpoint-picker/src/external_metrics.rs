//! The API `external.metrics.k8s.io/v1beta1`, by which a HorizontalPodAutoscaler scales a function by its requests, in
//! clusters where nothing else serves it. It tells numbers and changes nothing.
//!
//! The API server asks it in the name of an APIService, after it has checked that the caller may ask. Nobody else is
//! answered: `front_proxy` knows the API server.

mod front_proxy;
mod peers;

pub use front_proxy::watch_front_proxy;
pub use peers::{Peers, PeersError};

use crate::function::FunctionName;
use crate::picker::Picker;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use fpga_cluster::demand::{PartialMean, mean_of_all};
use fpga_net::http::{Limits, Port, Server};
use fpga_net::tls::ServerTls;
use fpga_picker_api::FunctionView;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{debug, warn};

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "external.metrics.k8s.io/v1beta1";
/// The label that names the function.
const FUNCTION: &str = "function";

/// All API servers of a cluster, each with a few connections for all autoscalers, and people.
const LIMITS: Limits = Limits {
    connections: 64,
    buffer_bytes: 16 * 1024,
    head: Duration::from_secs(5),
    // Go keeps connections for 90 s.
    idle: Duration::from_secs(120),
    drain: Duration::from_secs(1),
};

/// A metric of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    RequestsInFlight,
    RequestsPerSecond,
}

/// The metrics of all functions.
#[derive(Debug)]
pub struct ExternalMetrics {
    picker: Arc<Picker>,
    /// All pickers, this one among them; `None` if there is no other.
    peers: Option<Peers>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selection {
    #[serde(default)]
    label_selector: String,
}

/// Why there is no metric, as Kubernetes tells it.
#[derive(Debug)]
struct Failure(StatusCode, String);

impl Metric {
    const ALL: [Self; 2] = [Self::RequestsInFlight, Self::RequestsPerSecond];

    const fn name(self) -> &'static str {
        match self {
            Self::RequestsInFlight => "fpga_function_requests_in_flight",
            Self::RequestsPerSecond => "fpga_function_requests_per_second",
        }
    }

    fn of(self, function: &FunctionView) -> PartialMean {
        let mean = match self {
            Self::RequestsInFlight => function.recent_in_flight,
            Self::RequestsPerSecond => function.recent_per_second,
        };
        PartialMean { mean, seen: function.recent_seen }
    }

    /// The value by all pickers that know the function; `None` if there is none.
    fn of_all(self, views: &[FunctionView]) -> Option<f64> {
        let parts: Vec<PartialMean> = views.iter().map(|view| self.of(view)).collect();
        (!parts.is_empty()).then(|| mean_of_all(&parts))
    }
}

impl ExternalMetrics {
    /// The metrics of what `picker` and its `peers` count.
    #[must_use]
    pub fn new(picker: Arc<Picker>, peers: Option<Peers>) -> Arc<Self> {
        Arc::new(Self { picker, peers })
    }

    /// The routes.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route(&format!("/apis/{GROUP}"), get(group))
            .route(&format!("/apis/{VERSION}"), get(resources))
            .route(&format!("/apis/{VERSION}/namespaces/{{namespace}}/{{metric}}"), get(values))
            .with_state(self)
    }

    /// Serves until `stop` is true.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Arc<ServerTls>,
        stop: watch::Receiver<bool>,
    ) {
        let server = Server::new(LIMITS, |refusal| {
            debug!(refusal = refusal.name(), "A connection for external metrics was refused");
        });
        server.serve(Port::Tcp(listener, Some(tls)), self.router(), stop).await;
    }

    /// The value of a metric, over all pickers; `None` for a function that none of them knows.
    async fn value(&self, name: &FunctionName, metric: Metric) -> Result<Option<f64>, PeersError> {
        let views = match &self.peers {
            None => self.picker.with(|state, now| state.function(name, now)).into_iter().collect(),
            Some(peers) => peers.function(name).await?,
        };
        Ok(metric.of_all(&views))
    }
}

/// The API group, as Kubernetes asks for it.
async fn group() -> Response {
    let version = json!({"groupVersion": VERSION, "version": "v1beta1"});
    Json(json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version,
    }))
    .into_response()
}

/// The metrics that there are.
async fn resources() -> Response {
    let resource = |metric: Metric| {
        json!({
            "name": metric.name(), "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList",
            "verbs": ["get"],
        })
    };
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION,
        "resources": Metric::ALL.map(resource),
    }))
    .into_response()
}

/// The metric's values of the functions that the selector names.
async fn values(
    State(metrics): State<Arc<ExternalMetrics>>,
    Path((namespace, metric)): Path<(String, String)>,
    Query(selection): Query<Selection>,
) -> Result<Response, Failure> {
    if !metrics.picker.is_synced() {
        return Err(Failure(StatusCode::SERVICE_UNAVAILABLE, "the functions are not known yet".to_owned()));
    }
    let metric = Metric::ALL.into_iter().find(|known| known.name() == metric).ok_or_else(|| {
        let names = Metric::ALL.map(Metric::name).join(" or ");
        Failure(StatusCode::NOT_FOUND, format!("there is no metric {metric:?}; write {names}"))
    })?;
    let name = function(&namespace, &selection.label_selector)?;
    let value = metrics.value(&name, metric).await.map_err(|error| {
        warn!(%error, "The other pickers can't be asked, so that there are no external metrics");
        Failure(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    })?;
    let items: Vec<Value> = value.into_iter().map(|value| item(&name, metric, value)).collect();
    let list =
        json!({"kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": items});
    Ok(Json(list).into_response())
}

/// The function that a label selector names.
fn function(namespace: &str, selector: &str) -> Result<FunctionName, Failure> {
    let bad = || {
        let text = format!(
            "the selector {selector:?} names no function; write metric.selector.matchLabels with {FUNCTION}: NAME and nothing else"
        );
        Failure(StatusCode::BAD_REQUEST, text)
    };
    let (label, name) = selector.split_once('=').ok_or_else(bad)?;
    let name = name.strip_prefix('=').unwrap_or(name);
    if label.trim() != FUNCTION {
        return Err(bad());
    }
    format!("{namespace}/{}", name.trim()).parse().map_err(|_| bad())
}

fn item(name: &FunctionName, metric: Metric, value: f64) -> Value {
    // Kubernetes has a time in whole seconds.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
    json!({
        "metricName": metric.name(),
        "metricLabels": {FUNCTION: name.name.as_ref()},
        "timestamp": now.to_string(),
        // A quantity, in thousandths.
        "value": format!("{:.0}m", (value * 1e3).ceil()),
    })
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self(code, message) = self;
        let reason = match code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            _ => "ServiceUnavailable",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        (code, Json(status)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::picker::{Limits, Picker};
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::registry::Registry;
    use tower::ServiceExt as _;

    async fn ask(synced: bool, path: &str) -> (u16, Value) {
        let metrics = Metrics::register(&mut Registry::default());
        let picker = Picker::new(Limits { endpoints: 1, waiting: 1 }, metrics);
        picker.with(|state, now| {
            state.set_function(&"default/sobel".parse().unwrap(), &crate::function::Function::default(), now);
        });
        if synced {
            picker.set_synced();
        }
        let request = Request::get(format!("/apis/{VERSION}{path}")).body(Body::empty()).unwrap();
        let answer = ExternalMetrics::new(picker, None).router().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 16).await.unwrap();
        (code, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_known_function_has_a_value_and_an_unknown_one_none() {
        let (code, list) =
            ask(true, "/namespaces/default/fpga_function_requests_in_flight?labelSelector=function%3Dsobel")
                .await;
        assert_eq!((code, &list["kind"]), (200, &json!("ExternalMetricValueList")));
        assert_eq!((&list["items"][0]["value"], list["items"].as_array().unwrap().len()), (&json!("0m"), 1));
        for path in [
            "default/fpga_function_requests_per_second?labelSelector=function%3Dnobody",
            "other/fpga_function_requests_per_second?labelSelector=function%3D%3Dsobel",
        ] {
            let (code, list) = ask(true, &format!("/namespaces/{path}")).await;
            assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 0), "{path}");
        }
    }

    #[test]
    fn requests_that_a_new_picker_takes_over_count_once() {
        let view = |in_flight: f64, seen: f64| FunctionView {
            namespace: "default".to_owned(),
            name: "sobel".to_owned(),
            bitstream: None,
            in_flight: 0,
            per_second: 0.0,
            mean_in_flight: 0.0,
            recent_in_flight: in_flight,
            recent_per_second: 10.0 * in_flight,
            recent_seen: seen,
            requests: 0,
            recommended_replicas: 1,
            replicas: Vec::new(),
        };
        // Six requests in flight, which a picker of 5 s has from one that had them before.
        let seen = 1.0 - (-5.0_f64 / 15.0).exp();
        let both = [view(6.0 * (1.0 - seen), 1.0), view(6.0, seen)];
        for (metric, expected) in [(Metric::RequestsInFlight, 6.0), (Metric::RequestsPerSecond, 60.0)] {
            let value = metric.of_all(&both).unwrap();
            assert!((value - expected).abs() < 1e-9, "{metric:?}: {value}");
            assert!((metric.of_all(&both[1..]).unwrap() - expected).abs() < 1e-9, "the new one alone");
        }
        assert_eq!(Metric::RequestsInFlight.of_all(&[]), None);
    }

    #[tokio::test]
    async fn what_can_not_be_told_is_a_status_that_says_what_to_write() {
        let known = "/namespaces/default/fpga_function_requests_in_flight";
        for (synced, path, expected, hint) in [
            (
                true,
                "/namespaces/default/cpu?labelSelector=function%3Dsobel".to_owned(),
                404,
                "requests_in_flight",
            ),
            (true, known.to_owned(), 400, "matchLabels"),
            (true, format!("{known}?labelSelector=app%3Dsobel"), 400, "matchLabels"),
            (true, format!("{known}?labelSelector=function%3Da%2Cx%3Dy"), 400, "matchLabels"),
            (true, format!("{known}?labelSelector=function%3D..%2F..%2Fmetrics"), 400, "matchLabels"),
            (false, format!("{known}?labelSelector=function%3Dsobel"), 503, "not known yet"),
        ] {
            let (code, status) = ask(synced, &path).await;
            assert_eq!(
                (code, &status["kind"], &status["code"]),
                (expected, &json!("Status"), &json!(expected))
            );
            assert!(status["message"].as_str().unwrap().contains(hint), "{status}");
        }
        let (code, list) = ask(true, "").await;
        assert_eq!((code, list["resources"].as_array().unwrap().len()), (200, Metric::ALL.len()));
    }
}

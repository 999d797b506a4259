//! The answers for people and their tools: health, metrics, nodes, configuration and explanations.

use crate::app::App;
use crate::clock::Moment;
use crate::explain::{Explanation, PodName};
use crate::index::{Node, Source};
use crate::outvote::Votes;
use crate::response::json;
use crate::verbs::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpga_core::decide::DecisionRules;
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{NodeState, StateVersion};
use fpga_core::staleness::{Freshness, Knowledge};
use fpga_core::units::Millis;
use prometheus_client::encoding::text;
use serde::Serialize;
use std::sync::Arc;

/// Liveness: the process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: the extender knows all nodes, and with anti-herd all pods.
pub async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.is_ready() {
        return "ok\n".into_response();
    }
    let reason = if app.is_ending() {
        "the extender is about to end\n".to_owned()
    } else {
        let unknown = if app.index.is_synced() { "pods" } else { "nodes" };
        format!("the {unknown} of the cluster are not known yet\n")
    };
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

/// The routes for probes and Prometheus.
pub fn probes(app: Arc<App>) -> Router {
    let router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
    router.route("/metrics", get(metrics)).with_state(app)
}

/// The metrics in the OpenMetrics text format.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.metrics.count_nodes(&app.index, app.clock.read().now);
    let mut body = String::new();
    match text::encode(&mut body, &app.registry) {
        Ok(()) => ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], body)
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// All nodes as a decision made now would see them, as a JSON array in pieces. The index is locked only while the
/// nodes are listed, and one piece of the answer is in memory at a time.
pub async fn nodes(State(app): State<Arc<App>>, request: Request) -> Response {
    let at = app.clock.read();
    let mut nodes: Vec<(Box<str>, Arc<Node>)> =
        app.index.read().iter().map(|(name, node)| (name.clone(), Arc::clone(node))).collect();
    nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let bytes = nodes.len() * NODE_BYTES + PIECE_BYTES;
    let Ok(charge) = app.reading_budget.take(request.extensions(), bytes).await else {
        return Refusal::Busy.into_response();
    };
    let pieces = Pieces { nodes: nodes.into_iter(), at, next: Next::Begin };
    charge.answer(json(StatusCode::OK, Body::from_stream(futures::stream::iter(pieces))), bytes)
}

/// Memory for each node that is still to be written, its name included.
const NODE_BYTES: usize = 128;

/// The JSON array of nodes, as an iterator of pieces.
struct Pieces {
    nodes: std::vec::IntoIter<(Box<str>, Arc<Node>)>,
    at: Moment,
    next: Next,
}

/// The start of the next piece.
enum Next {
    Begin,
    Continue,
    Nothing,
}

/// Least size of a piece but the last.
const PIECE_BYTES: usize = 32 * 1024;

impl Iterator for Pieces {
    type Item = serde_json::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = match self.next {
            Next::Begin => vec![b'['],
            Next::Continue => vec![b','],
            Next::Nothing => return None,
        };
        self.next = Next::Continue;
        for index in 0.. {
            let Some((name, node)) = self.nodes.next() else {
                // The last node was in this piece, or there was none at all.
                piece.push(b']');
                self.next = Next::Nothing;
                break;
            };
            if index > 0 {
                piece.push(b',');
            }
            if let Err(error) = serde_json::to_writer(&mut piece, &NodeView::of(&name, &node, self.at)) {
                self.next = Next::Nothing;
                return Some(Err(error));
            }
            if piece.len() >= PIECE_BYTES && self.nodes.len() > 0 {
                break;
            }
        }
        Some(Ok(piece))
    }
}

/// The program's version.
pub async fn version() -> Response {
    let version = serde_json::json!({ "version": env!("CARGO_PKG_VERSION") });
    json(StatusCode::OK, version.to_string())
}

/// The settings in force, their sources, and the problem of the file.
pub async fn config(State(app): State<Arc<App>>) -> Response {
    respond(serde_json::to_vec(&app.config.view()))
}

/// Upper bounds of an explanation's text without nodes, and of the text for each node.
const EXPLANATION_BYTES: usize = 64 * 1024;
const ROW_BYTES: usize = 2048;

/// The latest decisions for a pod.
pub async fn explain(
    State(app): State<Arc<App>>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let pod = PodName { namespace, name };
    match app.explanations.of(&pod) {
        Some(explanation) => {
            let bytes = EXPLANATION_BYTES + explanation.rows() * ROW_BYTES;
            let Ok(charge) = app.reading_budget.take(request.extensions(), bytes).await else {
                return Refusal::Busy.into_response();
            };
            let scores = explanation.prioritize.as_deref();
            let scores = scores.map(|decided| decided.verdicts.iter().map(|node| node.score));
            let policy = explanation.policy.as_ref();
            let votes = scores.map(|scores| Votes::of(policy, scores));
            let explained = Explained { rules: &policy.rules, votes, explanation: &explanation };
            let body = serde_json::to_vec(&explained);
            let bytes = body.as_ref().map_or(0, Vec::capacity);
            charge.answer(respond(body), bytes)
        }
        None => {
            let error = format!(
                "no decision for pod {}/{} is remembered; another replica may have made it",
                pod.namespace, pod.name
            );
            json(StatusCode::NOT_FOUND, serde_json::json!({ "error": error }).to_string())
        }
    }
}

fn respond(body: serde_json::Result<Vec<u8>>) -> Response {
    match body {
        Ok(body) => json(StatusCode::OK, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Serialize)]
struct Explained<'a> {
    rules: &'a DecisionRules,
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<Votes>,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeView<'a> {
    name: &'a str,
    labels: &'a NodeLabels,
    freshness: Freshness,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<KnownView<'a>>,
}

/// The load in the window that ends now, and the state from which it was computed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KnownView<'a> {
    age_ms: Millis,
    version: StateVersion,
    usage_ms: Millis,
    reconfiguration_ms: Millis,
    state: &'a NodeState,
}

impl<'a> NodeView<'a> {
    fn of(name: &'a str, node: &'a Node, at: Moment) -> Self {
        let known = match &node.facts.knowledge {
            Knowledge::Known(received) => {
                let (state, age) = (received.state(), received.age(at.now));
                let load = received.signals().load_at(age);
                Some(KnownView {
                    age_ms: age,
                    version: state.version(),
                    usage_ms: load.usage,
                    reconfiguration_ms: load.reconfiguration,
                    state,
                })
            }
            Knowledge::Absent | Knowledge::Unreadable => None,
        };
        Self {
            name,
            labels: &node.facts.labels,
            freshness: node.facts.knowledge.freshness(at.now),
            source: node.source,
            problem: node.problem.as_ref().map(ToString::to_string),
            known,
        }
    }
}

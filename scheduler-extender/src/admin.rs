//! The answers for people and their tools: health, metrics, nodes, configuration and explanations.

pub mod nodes;

use crate::app::App;
use crate::explain::{Decided, Explanation, PodName};
use crate::index::NodeIndex;
use crate::response::json;
use crate::verbs::Refusal;
use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpga_core::decide::{DecisionRules, NodeScore};
use fpga_core::matching::Rejection;
use fpga_core::requirement::Requirement;
use fpga_core::units::WallTime;
use fpga_extender_api::{self as api, BestNode, DecisionView, Filtered, ScoreInfluence, Scored};
use fpga_net::http::open_metrics;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(&app)).merge(health(app))
}

/// The routes for probes.
pub fn health(app: Arc<App>) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(app)
}

/// The metrics in the OpenMetrics text format.
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.metrics.count_nodes(&app.index, app.clock.read().now);
    open_metrics(&app.registry)
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
            let body = serde_json::to_vec(&shown(&explanation, &app.index));
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

/// Most decisions in an answer to `/decisions`.
const MAX_DECISIONS: usize = 100;
/// Upper bound of the text for a decision.
const DECISION_BYTES: usize = 8 * 1024;
/// Nodes with the greatest scores that are told of a decision.
const BEST_NODES: usize = 3;

/// What of the decisions is asked for.
#[derive(Debug, Deserialize)]
pub struct Since {
    /// Only decisions from this time on, milliseconds since the epoch.
    #[serde(default)]
    since: u64,
}

/// The latest decisions, without their nodes, the latest first.
pub async fn decisions(
    State(app): State<Arc<App>>,
    Query(Since { since }): Query<Since>,
    request: Request,
) -> Response {
    let latest = app.explanations.since(WallTime(since), MAX_DECISIONS);
    let bytes = latest.len() * DECISION_BYTES;
    let Ok(charge) = app.reading_budget.take(request.extensions(), bytes).await else {
        return Refusal::Busy.into_response();
    };
    let body = serde_json::to_vec(&latest.iter().map(summary).collect::<Vec<_>>());
    let bytes = body.as_ref().map_or(0, Vec::capacity);
    charge.answer(respond(body), bytes)
}

/// A decision without its nodes.
fn summary(explanation: &Explanation) -> DecisionView<&str, Rejection> {
    let Explanation { pod, uid, requirement, problem, filter, prioritize, .. } = explanation;
    let verdicts = filter.as_ref().map(|filter| filter.decision.as_slice()).unwrap_or_default();
    let mut rejections = BTreeMap::new();
    for rejection in verdicts.iter().filter_map(|verdict| verdict.err()) {
        *rejections.entry(rejection).or_insert(0) += 1;
    }
    let scores = prioritize.iter().flat_map(|decided| decided.names.iter().zip(decided.decision.scores()));
    let mut best: Vec<BestNode<&str>> =
        scores.map(|(node, score)| BestNode { node, score: *score }).collect();
    best.sort_by_key(|node| Reverse(node.score));
    best.truncate(BEST_NODES);
    DecisionView {
        namespace: &pod.namespace,
        name: &pod.name,
        uid,
        at_ms: explanation.at().0,
        problem: problem.as_deref(),
        bitstreams: requirement.bitstreams.iter().map(ToString::to_string).collect(),
        candidates: verdicts.len(),
        passed: verdicts.iter().filter(|verdict| verdict.is_ok()).count(),
        rejections,
        best,
    }
}

fn respond(body: serde_json::Result<Vec<u8>>) -> Response {
    match body {
        Ok(body) => json(StatusCode::OK, body),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The answer for `explanation`, which borrows from it.
fn shown<'e>(
    explanation: &'e Explanation,
    index: &NodeIndex,
) -> api::Explanation<&'e str, &'e DecisionRules, &'e Requirement, Rejection, NodeScore> {
    let Explanation { pod, uid, requirement, problem, policy, filter, prioritize } = explanation;
    let influence = prioritize.as_deref().map(|decided| {
        let scores = decided.decision.scores().iter().copied();
        ScoreInfluence::of(policy.scheduler_weight.get(), policy.rules.max_score.get(), scores)
    });
    let filtered = |node, source, verdict: &Result<(), Rejection>| {
        let rejection = verdict.err();
        let is_cordoned = rejection == Some(Rejection::Cordoned);
        let cordons = if is_cordoned { cordons_of(node, index) } else { Vec::new() };
        Filtered { node, source, rejection, cordons }
    };
    let scored = |node, source, verdict| Scored { node, source, verdict };
    api::Explanation {
        rules: &policy.rules,
        influence,
        namespace: &pod.namespace,
        name: &pod.name,
        uid,
        requirement,
        problem: problem.as_deref(),
        filter: filter.as_deref().map(|filter| decided(filter, &filter.decision, filtered)),
        prioritize: prioritize.as_deref().map(|scores| decided(scores, scores.decision.nodes(), scored)),
    }
}

/// Most boards of a node that are told as out of rotation.
const MAX_CORDONS: usize = 4;

/// The boards of a node that are out of rotation now, each with the reason.
fn cordons_of(node: &str, index: &NodeIndex) -> Vec<String> {
    let node = index.read().get(node).cloned();
    let state = node.as_ref().and_then(|node| node.facts.knowledge.state());
    let cordons = state.iter().flat_map(|state| &state.cordons).take(MAX_CORDONS);
    cordons.map(|(board, cordoned)| format!("board {board} is {}", cordoned.cordon)).collect()
}

/// The answer for a decision, with a row for each node's name, origin and verdict.
fn decided<'d, D, V, R>(
    decided: &'d Decided<D>,
    verdicts: impl IntoIterator<Item = V>,
    row: impl Fn(&'d str, &'static str, V) -> R,
) -> api::Decided<R> {
    let nodes = decided.names.iter().zip(&decided.sources).zip(verdicts);
    let nodes = nodes.map(|((node, source), verdict)| row(node, source.name(), verdict)).collect();
    api::Decided { at_ms: decided.at.0, nodes }
}

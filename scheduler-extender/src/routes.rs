//! The routes of the ports, and what surrounds each decision: the body, the charge for its memory, metrics.

use crate::admin::{self, nodes};
use crate::app::App;
use crate::metrics::{ErrorKind, ModeLabel, Outcome, Verb};
use crate::response::json;
use crate::verbs::{self, Refusal};
use crate::wire::working_bytes;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fpga_net::http::{BodyError, BodyLimits, Charge};
use fpga_net::read_access::{ReadAccess, guarded};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest time for a request's body to arrive; kube-scheduler itself gives up after 5 s by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the routes.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Prefix of a second path to each verb, for example `/fpga`; none if empty.
    pub prefix: String,
    /// Longest request body in bytes.
    pub max_body_bytes: usize,
}

/// All routes: the verbs, and those of [`reading`] for everybody.
pub fn router(app: Arc<App>, routes: &Routes) -> Router {
    verbs(Arc::clone(&app), routes).merge(reading(app, None))
}

/// The routes of the verbs.
pub fn verbs(app: Arc<App>, routes: &Routes) -> Router {
    let limits = BodyLimits { bytes: routes.max_body_bytes, time: BODY_TIMEOUT };
    let mut router = Router::new();
    let mut prefixes = vec![""];
    if !routes.prefix.is_empty() {
        prefixes.push(&routes.prefix);
    }
    for prefix in prefixes {
        for verb in [Verb::Filter, Verb::Prioritize, Verb::Preempt] {
            let handler =
                move |State(app): State<Arc<App>>, request: Request| handle(app, verb, request, limits);
            router = router.route(&format!("{prefix}/{}", verb.name()), post(handler));
        }
    }
    router.with_state(app)
}

/// The routes for people and their tools: all but the verbs. They change nothing. With `access` pods, Bitstreams, nodes and
/// metrics are shown only to readers who may get the pods in question.
pub fn reading(app: Arc<App>, access: Option<Arc<ReadAccess>>) -> Router {
    let of_tenants = Router::new()
        .route("/nodes", get(nodes::known_nodes))
        .route("/config", get(admin::config))
        .route("/decisions", get(admin::decisions))
        .route("/explain/{namespace}/{pod}", get(admin::explain))
        .route("/metrics", get(admin::metrics))
        .with_state(Arc::clone(&app));
    let open = Router::new().route("/version", get(admin::version)).merge(admin::health(app));
    guarded(of_tenants, access).merge(open)
}

async fn handle(app: Arc<App>, verb: Verb, request: Request, limits: BodyLimits) -> Response {
    let started = Instant::now();
    let unfinished = Unfinished { app: &app, verb };
    let answer = match read_body(&app, request, limits).await {
        Ok((body, charge)) => {
            let held = body.len();
            let answer = verbs::answer(&app, verb, &body);
            answer.map(|answer| {
                // A reply shares the request's bytes, so both count until it is sent.
                let bytes = held + answer.body.len();
                (answer.mode, charge.answer(json(StatusCode::OK, Body::new(answer.body)), bytes))
            })
        }
        Err(refusal) => Err(refusal),
    };
    std::mem::forget(unfinished);
    let (mode, outcome, response) = match answer {
        Ok((mode, response)) => (mode, Outcome::Answered, response),
        Err(refusal) => {
            warn!(verb = verb.name(), %refusal, "Request refused");
            app.metrics.error(verb, refusal.kind());
            (ModeLabel::Unknown, Outcome::Refused(refusal.kind()), refusal.into_response())
        }
    };
    app.metrics.answered(verb, mode, outcome, started.elapsed());
    response
}

/// Counts an error if the request is dropped before its answer, as happens when the client closes the connection.
/// No other metric reports that.
struct Unfinished<'a> {
    app: &'a App,
    verb: Verb,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.app.metrics.error(self.verb, ErrorKind::Abandoned);
    }
}

/// The body of the request. The charge includes the memory that the decision will need.
async fn read_body(app: &App, request: Request, limits: BodyLimits) -> Result<(Bytes, Charge), Refusal> {
    let (body, charge) = app.budget.read(request, limits).await.map_err(|error| match error {
        BodyError::TooLarge => Refusal::TooLarge,
        BodyError::Interrupted => Refusal::Interrupted,
        BodyError::NoRoom(_) => Refusal::Busy,
    })?;
    charge.grow(working_bytes(body.len())).await.map_err(|_| Refusal::Busy)?;
    Ok((body.into(), charge))
}

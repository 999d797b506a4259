//! The service without its port: shared state and routes.

use crate::admin;
use crate::clock::Clock;
use crate::config::Config;
use crate::expectations::Expectations;
use crate::explain::Explanations;
use crate::index::NodeIndex;
use crate::metrics::{ErrorKind, Metrics, ModeLabel, Outcome, Verb};
use crate::record::Recorder;
use crate::settings::Policy;
use crate::verbs::{self, Refusal};
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{RequestExt as _, Router};
use fpga_core::decide::{AntiHerd, Rules};
use futures::StreamExt as _;
use http_body_util::LengthLimitError;
use prometheus_client::registry::Registry;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest time for a request's body to arrive: kube-scheduler itself gives up after 5 s by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What all requests share.
#[derive(Debug)]
pub struct App {
    /// The nodes.
    pub index: Arc<NodeIndex>,
    /// What pods that were just placed will add to them.
    pub expectations: Arc<Expectations>,
    /// What the administrator chose; it may change.
    pub config: Arc<Config>,
    /// The last decisions.
    pub explanations: Explanations,
    /// Where they are written, if they are.
    pub recorder: Option<Recorder>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where it is read.
    pub registry: Registry,
    /// What time it is.
    pub clock: Clock,
    was_ready: AtomicBool,
}

/// How the routes are laid out.
#[derive(Debug, Clone)]
pub struct Routes {
    /// A second path under which the verbs are found, for example `/fpga`; none if empty.
    pub prefix: String,
    /// Longest request body in bytes.
    pub max_body_bytes: usize,
}

impl App {
    /// A service that knows no nodes yet, and goes by these rules.
    #[must_use]
    pub fn new(rules: Rules, clock: Clock) -> Self {
        Self::with_config(Config::fixed(Policy { rules, ..Policy::default() }), clock)
    }

    /// The same with a configuration that may change.
    #[must_use]
    pub fn with_config(config: Config, clock: Clock) -> Self {
        let mut registry = Registry::default();
        config.metrics().register(&mut registry, &config.policy());
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::register(&mut registry));
        let expectations = Arc::new(Expectations::register(&mut registry));
        let index = Arc::new(NodeIndex::default());
        let explanations = Explanations::default();
        let (recorder, was_ready) = (None, AtomicBool::default());
        Self { index, expectations, config, explanations, recorder, metrics, registry, clock, was_ready }
    }

    /// Whether everything has been seen that decisions look at. Who was ready stays so: when anti-herd is switched on,
    /// decisions by measurements alone are better than none.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let needs_pods = || self.config.policy().rules.anti_herd == AntiHerd::On;
        if self.index.is_synced() && (self.expectations.is_synced() || !needs_pods()) {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        self.was_ready.load(Ordering::Relaxed)
    }
}

/// The routes over `app`.
pub fn app(app: Arc<App>, routes: &Routes) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(admin::healthz))
        .route("/readyz", get(admin::readyz))
        .route("/metrics", get(admin::metrics))
        .route("/nodes", get(admin::nodes))
        .route("/config", get(admin::config))
        .route("/version", get(admin::version))
        .route("/explain/{namespace}/{pod}", get(admin::explain));
    let mut prefixes = vec![""];
    if !routes.prefix.is_empty() {
        prefixes.push(&routes.prefix);
    }
    for prefix in prefixes {
        for verb in [Verb::Filter, Verb::Prioritize, Verb::Preempt] {
            let handler = move |State(app): State<Arc<App>>, request: Request| handle(app, verb, request);
            router = router.route(&format!("{prefix}/{}", verb.name()), post(handler));
        }
    }
    router.layer(DefaultBodyLimit::max(routes.max_body_bytes)).with_state(app)
}

async fn handle(app: Arc<App>, verb: Verb, request: Request) -> Response {
    let started = Instant::now();
    let unfinished = Unfinished { app: &app, verb };
    let answer = match read_body(request).await {
        Ok(body) => verbs::answer(&app, verb, &body),
        Err(refusal) => Err(refusal),
    };
    std::mem::forget(unfinished);
    let (mode, outcome, response) = match answer {
        Ok(answer) => (answer.mode, Outcome::Answered, json(StatusCode::OK, Body::new(answer.body))),
        Err(refusal) => {
            warn!(verb = verb.name(), %refusal, "Request refused");
            app.metrics.error(verb, refusal.kind());
            (ModeLabel::Unknown, Outcome::Refused(refusal.kind()), refusal.into_response())
        }
    };
    app.metrics.answered(verb, mode, outcome, started.elapsed());
    response
}

/// A request that its client gave up before there was an answer counts as an error: nobody else tells of it.
struct Unfinished<'a> {
    app: &'a App,
    verb: Verb,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.app.metrics.error(self.verb, ErrorKind::Abandoned);
    }
}

async fn read_body(request: Request) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(BODY_TIMEOUT, put_together(request.into_limited_body())).await {
        Ok(Ok(body)) => Ok(body.into()),
        Ok(Err(error)) if is_too_long(&error) => Err(Refusal::TooLarge),
        Ok(Err(_)) | Err(_) => Err(Refusal::Interrupted),
    }
}

/// The body as it comes, piece after piece: kept until the last one is there, the pieces of 5,000 whole nodes would take twice
/// their room.
async fn put_together(body: Body) -> Result<Vec<u8>, axum::Error> {
    // Not above the limit, which the body knows.
    let announced = body.size_hint().lower();
    let mut whole = Vec::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if whole.is_empty() {
            // Who only announces gets no room.
            whole.reserve_exact(usize::try_from(announced).unwrap_or_default().max(piece.len()));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// A response with `body`, which is JSON.
pub fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, JSON)], body.into()).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind() {
            ErrorKind::Malformed | ErrorKind::Requirement => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Interrupted | ErrorKind::Abandoned => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::NotSynced => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Answer => StatusCode::INTERNAL_SERVER_ERROR,
        };
        json(status, serde_json::json!({ "error": self.to_string() }).to_string())
    }
}

//! The service without its ports: shared state and routes.

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
use crate::wire::{MAX_WORKING_BYTES, working_bytes};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_net::http::{BodyError, BodyLimits, Budget, Charge};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest time for a request's body to arrive; kube-scheduler itself gives up after 5 s by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// State that all requests share.
#[derive(Debug)]
pub struct App {
    /// Nodes of the cluster.
    pub index: Arc<NodeIndex>,
    /// Usage that is expected of pods placed a moment ago.
    pub expectations: Arc<Expectations>,
    /// Configuration in force, which may change.
    pub config: Arc<Config>,
    /// Latest decisions, for people.
    pub explanations: Explanations,
    /// Writes decisions to a file, with `--record`.
    pub recorder: Option<Recorder>,
    /// Metrics that requests, watches and streams update.
    pub metrics: Arc<Metrics>,
    /// Registry that `/metrics` encodes.
    pub registry: Registry,
    /// Source of the time.
    pub clock: Clock,
    /// Memory budget of all requests for decisions.
    pub budget: Budget,
    /// Memory budget of people's requests, so that they take nothing from decisions.
    pub reading_budget: Budget,
    was_ready: AtomicBool,
    is_ending: AtomicBool,
}

/// Settings of the routes.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Prefix of a second path to each verb, for example `/fpga`; none if empty.
    pub prefix: String,
    /// Longest request body in bytes.
    pub max_body_bytes: usize,
}

/// The budget of people's requests is the budget of decisions divided by this.
const READING_PART: usize = 2;

impl App {
    /// A service without nodes, with `rules` for good.
    #[must_use]
    pub fn new(rules: DecisionRules, clock: Clock) -> Self {
        Self::with_config(Config::fixed(Policy { rules, ..Policy::default() }), clock)
    }

    /// A service without nodes, with a configuration that may change.
    #[must_use]
    pub fn with_config(config: Config, clock: Clock) -> Self {
        let mut registry = Registry::default();
        config.metrics().register(&mut registry, &config.policy());
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::register(&mut registry));
        let expectations = Arc::new(Expectations::register(&mut registry));
        let index = Arc::new(NodeIndex::default());
        let explanations = Explanations::default();
        let [budget, reading_budget] = budgets(Budget::default_bytes(None));
        Self {
            index,
            expectations,
            config,
            explanations,
            recorder: None,
            metrics,
            registry,
            clock,
            budget,
            reading_budget,
            was_ready: AtomicBool::default(),
            is_ending: AtomicBool::default(),
        }
    }

    /// Sets the bytes that all requests for decisions may hold together; people's requests may hold half as many.
    #[must_use]
    pub fn with_bytes_in_flight(mut self, bytes: usize) -> Self {
        [self.budget, self.reading_budget] = budgets(bytes);
        self
    }

    /// Whether the extender knows all nodes, and with anti-herd all pods, and is not about to end. Once ready, the
    /// extender stays ready when anti-herd is switched on later: a decision by measurements alone is better than
    /// none.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.is_ending() {
            return false;
        }
        let needs_pods = || self.config.policy().rules.anti_herd == AntiHerd::On;
        if self.index.is_synced() && (self.expectations.is_synced() || !needs_pods()) {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        self.was_ready.load(Ordering::Relaxed)
    }

    /// Makes [`Self::is_ready`] return false, so that no new client is sent here. Requests are still answered.
    pub fn begin_to_end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }
}

/// The budgets of decisions and of people's requests.
fn budgets(bytes: usize) -> [Budget; 2] {
    [Budget::new(bytes), Budget::new(bytes / READING_PART)]
}

/// All routes: the verbs, and those of [`reading`].
pub fn app(app: Arc<App>, routes: &Routes) -> Router {
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
    router.with_state(Arc::clone(&app)).merge(reading(app))
}

/// The routes for people and their tools: all but the verbs. They change nothing.
pub fn reading(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/nodes", get(admin::nodes))
        .route("/config", get(admin::config))
        .route("/version", get(admin::version))
        .route("/explain/{namespace}/{pod}", get(admin::explain));
    router.with_state(Arc::clone(&app)).merge(admin::probes(app))
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

/// The longest body that fits into a budget of `budget` bytes together with the memory for its decision.
#[must_use]
pub fn longest_body(budget: usize) -> usize {
    budget.saturating_sub(MAX_WORKING_BYTES)
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
            ErrorKind::NotSynced | ErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Answer => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = json(status, serde_json::json!({ "error": self.to_string() }).to_string());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

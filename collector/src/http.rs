//! The HTTP interface: decodes requests, passes them to the owner, and encodes answers and refusals.

use crate::intake;
use crate::metrics::{Metrics, RefusedReason};
use crate::owner::{Handle, Refusal, Report, Storage};
use crate::peers::{self, Peers};
use crate::rate::Rate;
use crate::server::Routers;
use axum::body::HttpBody as _;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use fpga_core::device::DeviceAnswer;
use fpga_core::event::Event;
use fpga_core::node_state::{self, NodeState};
use fpga_net::http::{BodyError, BodyLimits, Budget, Charge, open_metrics};
use prometheus_client::registry::Registry;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// State that the handlers share.
#[derive(Debug, Clone)]
pub struct App {
    owner: Handle,
    metrics: Metrics,
    registry: Arc<Registry>,
    limits: Limits,
    /// The bytes that all requests may hold together.
    budget: Budget,
    rate: Arc<Rate>,
    peers: Arc<Peers>,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum length of a body, in bytes.
    pub body_bytes: usize,
    /// Bytes that all requests may hold together: bodies, and the memory for parsing them.
    pub bytes_in_flight: usize,
    /// Bytes of bodies that are accepted per second.
    pub bytes_per_second: u32,
}

/// The answer to a request that was not carried out.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    reason: RefusedReason,
    text: String,
    /// Time after which the client should try again.
    again: Duration,
}

impl App {
    /// The interface to `owner` for `peers`, within `limits`.
    pub fn new(owner: Handle, metrics: Metrics, registry: Registry, limits: Limits, peers: Peers) -> Self {
        let budget = Budget::new(limits.bytes_in_flight);
        let rate = Arc::new(Rate::new(limits.bytes_per_second, Instant::now()));
        Self { owner, metrics, registry: Arc::new(registry), limits, budget, rate, peers: Arc::new(peers) }
    }

    pub fn routers(self) -> Routers {
        let probes = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics));
        let guard = (Arc::clone(&self.peers), self.metrics.clone());
        let reports = Router::new()
            .route("/v1/events", post(events))
            .route("/v1/devices/{id}", put(device).delete(device_gone))
            .route("/v1/plugin", put(plugin).delete(plugin_leaves))
            .route("/v1/state", get(state))
            .layer(middleware::from_fn_with_state(guard, peers::guard));
        let all = probes.clone().merge(reports);
        Routers { all: all.with_state(self.clone()), probes: probes.with_state(self) }
    }

    /// Reads the body, of at most `most` bytes. The charge covers the body and the `working_bytes` of its length.
    async fn body(
        &self,
        request: Request,
        most: usize,
        working_bytes: fn(usize) -> usize,
    ) -> Result<(Vec<u8>, Charge), Refused> {
        let limits = BodyLimits { bytes: most, time: BODY_TIMEOUT };
        let refused = |error| match error {
            BodyError::TooLarge => Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                reason: RefusedReason::TooLarge,
                text: format!("the body has more than {most} bytes; send fewer events at once"),
                again: Duration::ZERO,
            },
            BodyError::Interrupted => Refused {
                status: StatusCode::REQUEST_TIMEOUT,
                reason: RefusedReason::Incomplete,
                text: format!("the body did not arrive whole within {} s", BODY_TIMEOUT.as_secs()),
                again: Duration::ZERO,
            },
            BodyError::NoRoom(_) => Refused::from(Refusal::Busy),
        };
        // An announced length is checked but not charged, so that announcing alone keeps no other request out. A body
        // that exceeds the rate is refused before it is read.
        let announced = request.body().size_hint().lower().min(most as u64);
        self.pay(|rate, now| rate.check(announced, now))?;
        let (body, charge) = self.budget.read(request, limits).await.map_err(refused)?;
        self.pay(|rate, now| rate.take(body.len() as u64, now))?;
        charge.grow(working_bytes(body.len())).await.map_err(|_| Refused::from(Refusal::Busy))?;
        Ok((body, charge))
    }

    fn pay(&self, pay: impl FnOnce(&Rate, Instant) -> Result<(), Duration>) -> Result<(), Refused> {
        pay(&self.rate, Instant::now()).map_err(|again| Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            reason: RefusedReason::Rate,
            text: "more is reported than --max-bytes-per-second allows; try again later".to_owned(),
            again,
        })
    }

    fn answer<T: IntoResponse>(&self, result: Result<T, Refused>) -> Response {
        match result {
            Ok(answer) => answer.into_response(),
            Err(Refused { status, reason, text, again }) => {
                self.metrics.refuse(reason);
                let body = Json(json!({ "error": text }));
                let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
                if busy {
                    // Retry-After has whole seconds, and 0 would be no pause.
                    let seconds = again.as_secs_f64().ceil().max(1.0).to_string();
                    (status, [(header::RETRY_AFTER, seconds)], body).into_response()
                } else {
                    (status, body).into_response()
                }
            }
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (status, reason) = match refusal {
            Refusal::NoRoom(_) => (StatusCode::TOO_MANY_REQUESTS, RefusedReason::NoRoom),
            Refusal::Busy => (StatusCode::TOO_MANY_REQUESTS, RefusedReason::Busy),
            Refusal::Storage | Refusal::Ending => (StatusCode::SERVICE_UNAVAILABLE, RefusedReason::Storage),
        };
        Self { status, reason, text: refusal.to_string(), again: Duration::from_secs(1) }
    }
}

impl From<intake::Malformed> for Refused {
    fn from(malformed: intake::Malformed) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            reason: RefusedReason::Malformed,
            text: malformed.to_string(),
            again: Duration::ZERO,
        }
    }
}

/// Takes the events of a reporter, one or an array, and answers when they are on disk.
async fn events(State(app): State<App>, request: Request) -> Response {
    let result = async {
        let (body, charge) = app.body(request, app.limits.body_bytes, intake::events_working_bytes).await?;
        let events = intake::events(&body)?;
        charge.shrink_to(body.len() + events.capacity() * size_of::<Event>());
        Ok(Json(app.owner.events(Report { events, body, charge }).await?))
    };
    app.answer(result.await)
}

/// Takes the status of a device, which its manager repeats.
async fn device(State(app): State<App>, Path(id): Path<String>, request: Request) -> Response {
    let result = async {
        let most = app.limits.body_bytes.min(intake::MAX_DEVICE_BYTES);
        let (body, _charge) = app.body(request, most, intake::device_working_bytes).await?;
        let rotation = app.owner.device(intake::device(&id, &body)?).await?;
        Ok(Json(DeviceAnswer { rotation }))
    };
    app.answer(result.await)
}

/// Forgets a device whose manager has ended.
async fn device_gone(State(app): State<App>, Path(id): Path<String>) -> Response {
    let result = async {
        let known = app.owner.gone(id).await?;
        let status = if known { StatusCode::OK } else { StatusCode::NOT_FOUND };
        Ok((status, Json(json!({}))))
    };
    app.answer(result.await)
}

/// Takes the node plugin's report.
async fn plugin(State(app): State<App>, request: Request) -> Response {
    let result = async {
        let most = app.limits.body_bytes.min(intake::MAX_PLUGIN_BYTES);
        let (body, _charge) = app.body(request, most, intake::device_working_bytes).await?;
        app.owner.plugin(intake::plugin(&body)?).await?;
        Ok(Json(json!({})))
    };
    app.answer(result.await)
}

/// Hears that the node plugin is about to end.
async fn plugin_leaves(State(app): State<App>) -> Response {
    let left = app.owner.plugin_leaves().await.map_err(Refused::from);
    app.answer(left.map(|()| Json(json!({}))))
}

/// The node state as it is now, as JSON.
async fn state(State(app): State<App>) -> Response {
    let result = app.owner.measure().await.map_err(Refused::from);
    app.answer(result.map(|state| as_text(&state)))
}

fn as_text(state: &NodeState) -> Response {
    match node_state::encode_whole(state) {
        Ok(encoded) => ([(header::CONTENT_TYPE, "application/json")], encoded.text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": error.to_string() }))).into_response()
        }
    }
}

async fn readyz(State(app): State<App>) -> Response {
    match app.owner.storage() {
        Storage::Good => "ok\n".into_response(),
        Storage::Failing => {
            (StatusCode::SERVICE_UNAVAILABLE, "the checkpoint can't be written\n").into_response()
        }
    }
}

async fn metrics(State(app): State<App>) -> Response {
    open_metrics(&app.registry)
}

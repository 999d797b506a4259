//! The HTTP interface: decode, ask the owner, map the refusal, encode.

use crate::intake;
use crate::metrics::{Metrics, RefusedReason};
use crate::owner::{Handle, Refusal, Storage};
use crate::peers::{self, Peers};
use crate::rate::Rate;
use crate::server::Routers;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use fpga_core::node_state::{self, NodeState};
use http_body_util::LengthLimitError;
use prometheus_client::registry::Registry;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What the handlers share.
#[derive(Debug, Clone)]
pub struct App {
    owner: Handle,
    metrics: Metrics,
    registry: Arc<Registry>,
    limits: Limits,
    /// Bodies in memory at once.
    in_flight: Arc<Semaphore>,
    rate: Arc<Rate>,
    peers: Arc<Peers>,
}

/// How much is taken.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest body.
    pub body_bytes: usize,
    /// Requests that are worked on at once.
    pub in_flight: usize,
    /// Bytes of bodies per second.
    pub bytes_per_second: u32,
}

/// A request that was not carried out.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    reason: RefusedReason,
    text: String,
    /// After what time to ask again.
    again: Duration,
}

impl App {
    /// The interface to `owner` for `peers`, within `limits`.
    pub fn new(owner: Handle, metrics: Metrics, registry: Registry, limits: Limits, peers: Peers) -> Self {
        let in_flight = Arc::new(Semaphore::new(limits.in_flight));
        let rate = Arc::new(Rate::new(limits.bytes_per_second, Instant::now()));
        Self { owner, metrics, registry: Arc::new(registry), limits, in_flight, rate, peers: Arc::new(peers) }
    }

    /// Its routes.
    pub fn routers(self) -> Routers {
        let probes = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics));
        let guard = (Arc::clone(&self.peers), self.metrics.clone());
        let reports = Router::new()
            .route("/v1/events", post(events))
            .route("/v1/devices/{id}", put(device).delete(device_gone))
            .route("/v1/state", get(state))
            .layer(middleware::from_fn_with_state(guard, peers::guard));
        let all = probes.clone().merge(reports);
        Routers { all: all.with_state(self.clone()), probes: probes.with_state(self) }
    }

    fn enter(&self) -> Result<SemaphorePermit<'_>, Refused> {
        self.in_flight.try_acquire().map_err(|_| Refused::from(Refusal::Busy))
    }

    async fn body(&self, body: Body) -> Result<Bytes, Refused> {
        let too_large = || Refused {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            reason: RefusedReason::TooLarge,
            text: format!(
                "the body has more than {} bytes; send fewer events at once",
                self.limits.body_bytes
            ),
            again: Duration::ZERO,
        };
        let incomplete = |text: String| Refused {
            status: StatusCode::REQUEST_TIMEOUT,
            reason: RefusedReason::Incomplete,
            text,
            again: Duration::ZERO,
        };
        // What is announced as too long need not be read at all.
        let announced = axum::body::HttpBody::size_hint(&body).lower();
        if announced > self.limits.body_bytes as u64 {
            return Err(too_large());
        }
        self.charge(announced)?;
        match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, self.limits.body_bytes)).await {
            Ok(Ok(bytes)) => {
                // What was not announced is paid for now.
                self.charge(bytes.len() as u64 - announced.min(bytes.len() as u64))?;
                Ok(bytes)
            }
            Ok(Err(error)) if is_too_large(&error) => Err(too_large()),
            Ok(Err(error)) => Err(incomplete(format!("the body broke off: {error}"))),
            Err(_) => Err(incomplete(format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))),
        }
    }

    fn charge(&self, bytes: u64) -> Result<(), Refused> {
        self.rate.take(bytes, Instant::now()).map_err(|again| Refused {
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
                    // In whole seconds, and none is none.
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

fn is_too_large(error: &axum::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

async fn events(State(app): State<App>, request: Request) -> Response {
    let result = async {
        let _permit = app.enter()?;
        let body = app.body(request.into_body()).await?;
        let events = intake::events(&body)?;
        Ok(Json(app.owner.events(events, body).await?))
    };
    app.answer(result.await)
}

async fn device(State(app): State<App>, Path(id): Path<String>, request: Request) -> Response {
    let result = async {
        let _permit = app.enter()?;
        let body = app.body(request.into_body()).await?;
        app.owner.device(intake::device(&id, &body)?).await?;
        Ok(Json(json!({})))
    };
    app.answer(result.await)
}

async fn device_gone(State(app): State<App>, Path(id): Path<String>) -> Response {
    let result = async {
        let _permit = app.enter()?;
        let known = app.owner.gone(id).await?;
        let status = if known { StatusCode::OK } else { StatusCode::NOT_FOUND };
        Ok((status, Json(json!({}))))
    };
    app.answer(result.await)
}

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
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &app.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

//! A stand-in for a collector. It records requests, and answers as the test sets it.

use crate::Server;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use fpga_core::device::{DeviceAnswer, DeviceStatus};
use fpga_core::event::Event;
use fpga_hook::Endpoint;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The recorded requests, and the settings of the answers.
#[derive(Default)]
pub struct Seen {
    pub bodies: Vec<Bytes>,
    pub accepted: Vec<Event>,
    pub devices: Vec<(String, Option<DeviceStatus>)>,
    /// The answer to each status.
    pub answer: DeviceAnswer,
    /// Number of requests to answer with 503, after recording them.
    pub unavailable: usize,
    /// If set, the next request is answered with 429 and this pause in seconds.
    pub throttle: Option<u64>,
    pub times: Vec<Instant>,
    /// Required value of `Authorization`, if set; requests with another value are recorded and answered with 403.
    pub wanted: Option<&'static str>,
    pub authorizations: Vec<Option<String>>,
    /// Batches with an event of this bitstream are refused.
    pub poison: Option<&'static str>,
    /// This device is answered with 429.
    pub no_room_for: Option<&'static str>,
    /// Number of answers because of `no_room_for`.
    pub no_room: usize,
    /// Events are answered with 503 while this is set.
    pub takes_no_events: bool,
}

pub type Shared = Arc<Mutex<Seen>>;

/// A running stand-in, which ends when it is dropped.
pub struct CollectorStandIn {
    server: Server,
    pub endpoint: Endpoint,
}

impl CollectorStandIn {
    /// Starts a stand-in at a free port.
    pub fn tcp(seen: &Shared) -> Self {
        Self::start(&Endpoint::Tcp("127.0.0.1:0".to_owned()), seen)
    }

    pub fn start(endpoint: &Endpoint, seen: &Shared) -> Self {
        let router = Router::new()
            .route("/v1/events", post(events))
            .route("/v1/devices/{id}", put(device).delete(no_device))
            .with_state(Arc::clone(seen));
        match endpoint {
            Endpoint::Tcp(address) => {
                let server = Server::tcp(address, router);
                let endpoint = Endpoint::Tcp(server.address().to_owned());
                Self { server, endpoint }
            }
            Endpoint::Unix(path) => Self { server: Server::unix(path, router), endpoint: endpoint.clone() },
        }
    }

    /// Cuts all connections, and returns the address.
    pub fn kill(self) -> Endpoint {
        self.server.stop();
        self.endpoint
    }
}

async fn events(State(seen): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let mut seen = seen.lock().unwrap();
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    seen.authorizations.push(shown.clone());
    if seen.wanted.is_some() && seen.wanted != shown.as_deref() {
        return (StatusCode::FORBIDDEN, "show the token").into_response();
    }
    let events: Vec<Event> = serde_json::from_slice(&body).unwrap();
    seen.bodies.push(body);
    seen.times.push(Instant::now());
    if let Some(seconds) = seen.throttle.take() {
        let again = [(header::RETRY_AFTER, seconds.to_string())];
        return (StatusCode::TOO_MANY_REQUESTS, again, "slower").into_response();
    }
    if seen.takes_no_events || seen.unavailable > 0 {
        seen.unavailable = seen.unavailable.saturating_sub(1);
        return (StatusCode::SERVICE_UNAVAILABLE, "later").into_response();
    }
    if events.iter().any(|event| seen.poison == Some(event.bitstream_identifier.to_string().as_str())) {
        return (StatusCode::BAD_REQUEST, "poison").into_response();
    }
    seen.accepted.extend(events);
    "{}".into_response()
}

async fn device(State(seen): State<Shared>, Path(id): Path<String>, body: Bytes) -> Response {
    let status = serde_json::from_slice(&body).unwrap();
    let mut seen = seen.lock().unwrap();
    if seen.no_room_for == Some(&id) {
        seen.no_room += 1;
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    }
    seen.devices.push((id, Some(status)));
    Json(seen.answer).into_response()
}

async fn no_device(State(seen): State<Shared>, Path(id): Path<String>) -> StatusCode {
    seen.lock().unwrap().devices.push((id, None));
    StatusCode::OK
}

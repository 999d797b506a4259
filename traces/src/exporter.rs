//! The thread that sends spans to a collector.
//!
//! It has a runtime of its own, so that neither a busy service nor a slow collector holds up the other. What a collector
//! does not take is tried once more, and dropped then: spans are worth less than memory.

use crate::otlp::{Resource, request};
use crate::span::Span;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::io;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

/// Most spans of a request.
const MAX_BATCH: usize = 512;
/// Time in which spans collect for a request.
const COLLECT: Duration = Duration::from_millis(500);
/// Longest time for a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a request is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Counts of spans.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Spans that a collector took.
    pub sent: Counter,
    /// Spans that nobody got.
    pub dropped: Counter,
}

impl Counters {
    /// Registers the counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "spans_sent",
            "Spans of traces that the collector of --otlp-endpoint has taken",
            self.sent.clone(),
        );
        registry.register(
            "spans_dropped",
            "Spans of traces that were dropped: too many waited, or the collector did not take them",
            self.dropped.clone(),
        );
    }
}

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST:PORT`
    authority: String,
    /// Path of the requests.
    path: String,
}

/// A text that is no address of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "write http://HOST:PORT of a collector that takes OTLP over HTTP, as http://127.0.0.1:4318; for TLS run a collector on the node"
)]
pub struct InvalidEndpoint;

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let uri: Uri = text.parse().map_err(|_| InvalidEndpoint)?;
        let authority = uri.authority().ok_or(InvalidEndpoint)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(InvalidEndpoint);
        }
        let port = authority.port_u16().unwrap_or(80);
        let path = format!("{}/v1/traces", uri.path().trim_end_matches('/'));
        Ok(Self { authority: format!("{}:{port}", authority.host()), path })
    }
}

/// Starts the thread.
///
/// # Errors
/// The system's error.
pub fn start(
    endpoint: Endpoint,
    resource: Resource,
    spans: Receiver<Span>,
    counters: Counters,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = move || runtime.block_on(send_all(&endpoint, &resource, spans, &counters));
    std::thread::Builder::new().name("otlp".to_owned()).spawn(work)?;
    Ok(())
}

/// Sends until nobody records spans any more.
async fn send_all(endpoint: &Endpoint, resource: &Resource, mut spans: Receiver<Span>, counters: &Counters) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut was_taken = true;
    while let Some(first) = spans.recv().await {
        batch.push(first);
        let fill = async {
            while batch.len() < MAX_BATCH {
                let room = MAX_BATCH - batch.len();
                if spans.recv_many(&mut batch, room).await == 0 {
                    break;
                }
            }
        };
        // The time is over, or nobody records any more: in both cases what is there is sent.
        let _ = timeout(COLLECT, fill).await;
        let count = batch.len() as u64;
        let body = Bytes::from(request(resource, &batch).to_string());
        batch.clear();
        match send(endpoint, body).await {
            Ok(()) => {
                counters.sent.inc_by(count);
                was_taken = true;
            }
            Err(error) => {
                counters.dropped.inc_by(count);
                if was_taken {
                    warn!(
                        collector = endpoint.authority,
                        error, "Traces are dropped: the collector does not take them"
                    );
                }
                was_taken = false;
            }
        }
    }
}

/// Sends a request, and once more if the collector may take it later.
async fn send(endpoint: &Endpoint, body: Bytes) -> Result<(), String> {
    let Err(error) = post(endpoint, body.clone()).await else { return Ok(()) };
    debug!(error.text, "A request with spans is tried again");
    if !error.may_pass {
        return Err(error.text);
    }
    sleep(RETRY).await;
    post(endpoint, body).await.map_err(|error| error.text)
}

struct Refused {
    text: String,
    /// Whether the same request may be taken later.
    may_pass: bool,
}

async fn post(endpoint: &Endpoint, body: Bytes) -> Result<(), Refused> {
    let broken = |error: &dyn std::error::Error| Refused { text: error.to_string(), may_pass: true };
    let exchange = async {
        let stream = TcpStream::connect(&endpoint.authority).await.map_err(|error| broken(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        let request = Request::post(&endpoint.path)
            .header(HOST, &endpoint.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| broken(&error))?;
        let answer = async {
            let answer = sender.send_request(request).await;
            drop(sender);
            // The answer's body says nothing that is needed. Without it and the sender the connection ends.
            answer.map(|answer| answer.status())
        };
        let (status, _) = tokio::join!(answer, connection);
        let status = status.map_err(|error| broken(&error))?;
        // The standard names these statuses as passing.
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        if status.is_success() {
            Ok(())
        } else {
            Err(Refused { text: format!("it answers {status}"), may_pass })
        }
    };
    let late = |_| Refused { text: "it does not answer in time".to_owned(), may_pass: true };
    timeout(TIMEOUT, exchange).await.map_err(late)?
}

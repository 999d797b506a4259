//! A collector of traces, which takes spans by OTLP over HTTP, in the place of an OpenTelemetry collector.

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A collector; it ends when it is dropped.
#[derive(Debug)]
pub struct TraceCollector {
    endpoint: String,
    spans: Spans,
    _server: JoinSet<()>,
}

/// A span that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// The program that sent it (`service.name`).
    pub service: String,
    /// The trace, 32 hexadecimal digits.
    pub trace: String,
    /// The span's id, 16 hexadecimal digits.
    pub id: String,
    /// The id of the span that caused it.
    pub parent: String,
    /// The name.
    pub name: String,
    /// Begin and end, in nanoseconds since the epoch.
    pub times_ns: [u64; 2],
    /// Attributes with texts.
    pub attributes: Vec<(String, String)>,
}

type Spans = Arc<Mutex<Vec<ReceivedSpan>>>;

impl TraceCollector {
    /// Starts a collector on the loopback.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let spans = Spans::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&spans));
        let mut server = JoinSet::new();
        server.spawn(async move {
            // The server ends with the collector only.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { endpoint, spans, _server: server })
    }

    /// The value of `--otlp-endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The spans of a trace that have come so far.
    #[must_use]
    pub fn trace(&self, trace: &str) -> Vec<ReceivedSpan> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

async fn take(State(spans): State<Spans>, body: String) -> StatusCode {
    let Ok(request) = serde_json::from_str::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    let mut taken = Vec::new();
    for resource in request["resourceSpans"].as_array().into_iter().flatten() {
        let service = attributes(&resource["resource"]).into_iter().find(|(key, _)| key == "service.name");
        let service = service.map(|(_, value)| value).unwrap_or_default();
        for scope in resource["scopeSpans"].as_array().into_iter().flatten() {
            taken
                .extend(scope["spans"].as_array().into_iter().flatten().map(|span| received(&service, span)));
        }
    }
    spans.lock().unwrap_or_else(PoisonError::into_inner).extend(taken);
    StatusCode::OK
}

fn received(service: &str, span: &Value) -> ReceivedSpan {
    let text = |key: &str| span[key].as_str().unwrap_or_default().to_owned();
    ReceivedSpan {
        service: service.to_owned(),
        trace: text("traceId"),
        id: text("spanId"),
        parent: text("parentSpanId"),
        name: text("name"),
        times_ns: ["startTimeUnixNano", "endTimeUnixNano"].map(|key| text(key).parse().unwrap_or_default()),
        attributes: attributes(span),
    }
}

fn attributes(of: &Value) -> Vec<(String, String)> {
    let pairs = of["attributes"].as_array().into_iter().flatten().filter_map(|attribute| {
        let value = attribute["value"]["stringValue"].as_str()?;
        Some((attribute["key"].as_str()?.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

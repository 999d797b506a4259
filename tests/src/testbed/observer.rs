//! A proxy between kube-scheduler and the replicas of an extender. Like a Service, it sends each request to the next
//! available replica; it records the requests and the answers.

use super::http_client::HttpClient;
use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::StatusCode;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A request of kube-scheduler with the extender's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `filter`, `prioritize` or `preempt`.
    pub verb: String,
    /// Name of the request's pod.
    pub pod: String,
    /// The nodes in the request.
    pub candidates: Vec<String>,
    /// The nodes in the answer.
    pub answered: Vec<String>,
    /// Index of the replica that answered.
    pub replica: usize,
}

/// The running proxy. It ends when dropped, except for requests in progress.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    url: String,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    replicas: Vec<String>,
    next: AtomicUsize,
    calls: Mutex<Vec<Call>>,
    http: HttpClient,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    pod: Pod,
    node_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Reply {
    Prioritize(Vec<Scored>),
    Filter {
        #[serde(rename = "NodeNames")]
        node_names: Option<Vec<String>>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Scored {
    host: String,
}

impl Observer {
    /// Listens on `address` and passes requests to the extenders at these URLs.
    ///
    /// # Errors
    /// The address can't be bound.
    pub async fn start(address: SocketAddr, replicas: Vec<String>) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("can't listen on {address}"))?;
        let shared = Arc::new(Shared {
            replicas,
            next: AtomicUsize::new(0),
            calls: Mutex::default(),
            http: HttpClient::new(Duration::from_secs(5)),
        });
        let router = Router::new()
            .route("/{verb}", post(pass_on))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            // The server runs until its task is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { shared, url: format!("http://{address}"), server })
    }

    /// The URL for kube-scheduler's configuration.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops listening, and returns the recorded calls in order.
    pub async fn stop(mut self) -> Vec<Call> {
        self.server.abort();
        // The result is the cancellation requested above.
        let _ = (&mut self.server).await;
        self.calls()
    }

    /// The calls recorded so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn pass_on(State(shared): State<Arc<Shared>>, Path(verb): Path<String>, body: Bytes) -> Response {
    let first = shared.next.fetch_add(1, Ordering::Relaxed);
    for step in 0..shared.replicas.len() {
        let replica = (first + step) % shared.replicas.len();
        let url = format!("{}/{verb}", shared.replicas[replica]);
        if let Ok(answer) = shared.http.post(&url, body.clone()).await {
            shared.note(verb, &body, &answer.body, replica);
            return (answer.status, answer.body).into_response();
        }
    }
    (StatusCode::BAD_GATEWAY, "no replica answers").into_response()
}

impl Shared {
    fn note(&self, verb: String, request: &[u8], answer: &[u8], replica: usize) {
        let Ok(Request { pod, node_names }) = serde_json::from_slice(request) else { return };
        let answered = match serde_json::from_slice(answer) {
            Ok(Reply::Prioritize(scored)) => scored.into_iter().map(|node| node.host).collect(),
            Ok(Reply::Filter { node_names }) => node_names.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let candidates = node_names.unwrap_or_default();
        let call = Call { verb, pod: pod.metadata.name, candidates, answered, replica };
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

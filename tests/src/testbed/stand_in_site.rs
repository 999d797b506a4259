//! Answers in place of an API server, an extender and an endpoint picker, as tests of the live page wish: states that no
//! machine here could have, and names that no API server would take.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the parts answer.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// `/nodes` of the extender.
    pub nodes: Vec<Value>,
    /// `/decisions` of the extender.
    pub decisions: Vec<Value>,
    /// `/explain/...` of the extender, for any pod.
    pub explanation: Value,
    /// `/functions` of the picker.
    pub functions: Vec<Value>,
    /// `/picks/...` of the picker, for any function.
    pub picks: Value,
    /// Pods of the API server.
    pub pods: Vec<Value>,
}

/// Whether a part answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// With what the site was given.
    Yes,
    /// 403: the user may not ask.
    Forbidden,
    /// An error of the server.
    Fails,
}

/// The three parts, at one address.
#[derive(Debug)]
pub struct StandInSite {
    address: SocketAddr,
    shared: Arc<Mutex<(Answers, Answering)>>,
    server: JoinHandle<()>,
}

type Shared = Arc<Mutex<(Answers, Answering)>>;

impl StandInSite {
    /// Starts answering.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(answers: Answers) -> Result<Self> {
        let shared: Shared = Arc::new(Mutex::new((answers, Answering::Yes)));
        let of = |take: fn(&Answers) -> Value| {
            get(async move |State(shared): State<Shared>| answer(&shared, take))
        };
        let router = Router::new()
            .route("/nodes", of(|answers| json!(answers.nodes)))
            .route("/decisions", of(|answers| json!(answers.decisions)))
            .route("/explain/{namespace}/{pod}", of(|answers| answers.explanation.clone()))
            .route("/functions", of(|answers| json!(answers.functions)))
            .route("/picks/{namespace}/{function}", of(|answers| answers.picks.clone()))
            .route("/api/v1/{kind}", get(listed))
            .route("/api/v1/namespaces/{namespace}/{kind}", get(listed_in))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // The server ends with the test, so that an error has no reader.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, shared, server })
    }

    /// The address of the extender and of the picker.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Writes a kubeconfig for the API server into `folder`, and returns its path.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn kubeconfig(&self, folder: &std::path::Path) -> Result<std::path::PathBuf> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url()}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = folder.join("kubeconfig");
        std::fs::write(&path, config.to_string()).context("can't write the kubeconfig")?;
        Ok(path)
    }

    /// Changes the answers.
    pub fn change(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).0);
    }

    /// Whether the parts answer from now on.
    pub fn answering(&self, answering: Answering) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).1 = answering;
    }
}

impl Drop for StandInSite {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn answer(shared: &Shared, take: fn(&Answers) -> Value) -> Response {
    let guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let (code, reason) = match guard.1 {
        Answering::Yes => return axum::Json(take(&guard.0)).into_response(),
        Answering::Forbidden => (StatusCode::FORBIDDEN, "Forbidden"),
        Answering::Fails => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the test says {reason}"), "reason": reason, "code": code.as_u16()});
    (code, axum::Json(status)).into_response()
}

async fn listed(
    State(shared): State<Shared>,
    Path(kind): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if query.contains_key("watch") {
        // Nothing changes. The stream stays open, as that of an API server does.
        return Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>().boxed())
            .into_response();
    }
    let take: fn(&Answers) -> Value = match kind.as_str() {
        "pods" => |answers| list("PodList", &answers.pods),
        _ => |_| list("List", &[]),
    };
    answer(&shared, take)
}

async fn listed_in(
    shared: State<Shared>,
    Path((_, kind)): Path<(String, String)>,
    query: Query<HashMap<String, String>>,
) -> Response {
    listed(shared, Path(kind), query).await
}

fn list(kind: &str, items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items})
}

//! Asks a manager over its unix socket for metrics, by HTTP.

use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// Longest time that a manager may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// A manager's answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Whether the status is 200.
    pub(super) ok: bool,
    pub(super) text: String,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The answer to GET `path`.
///
/// # Errors
/// The manager does not answer.
pub(super) async fn get(socket: &Path, path: &str) -> Result<Answer, Failure> {
    tokio::time::timeout(TIMEOUT, exchange(socket, path))
        .await
        .map_err(|_| Failure::from(format!("no answer in {TIMEOUT:?}")))?
}

async fn exchange(socket: &Path, path: &str) -> Result<Answer, Failure> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header("host", "manager").body(Body::empty())?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), MAX_ANSWER_BYTES).await?;
        drop(sender);
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok::<_, Failure>(Answer { ok: head.status == StatusCode::OK, text })
    };
    // The connection does the work of the exchange, and ends after it.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}

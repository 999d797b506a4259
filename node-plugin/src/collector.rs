//! Asks the node's collector for the state of its boards, and reports to the collector.

use fpga_core::node_state::{NodeState, PluginReport, Unreadable, decode};
use fpga_hook::Endpoint;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest time that the collector may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The reason why the collector tells or takes nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    /// The connection to the address failed.
    #[error("the collector {endpoint} can't be reached: {reason}")]
    Unreachable {
        /// The address.
        endpoint: Endpoint,
        /// The reason.
        reason: String,
    },
    /// The collector answers with an error.
    #[error("the collector answers {0}")]
    Status(StatusCode),
    /// The answer is no state of a node.
    #[error("the collector's state can't be read: {0}")]
    State(#[from] Unreadable),
    /// The report can't be written as JSON.
    #[error("the report can't be written: {0}")]
    Report(#[from] serde_json::Error),
}

/// The state of the boards as the collector knows it now.
///
/// # Errors
/// [`CollectorError`], if there is no state.
pub(crate) async fn state(endpoint: &Endpoint) -> Result<NodeState, CollectorError> {
    let body = ask(endpoint, Method::GET, "/v1/state", Bytes::new()).await?;
    Ok(decode(&String::from_utf8_lossy(&body))?)
}

/// Tells the collector of this plugin.
///
/// # Errors
/// [`CollectorError`], if the collector does not take the report.
pub(crate) async fn report(endpoint: &Endpoint, report: &PluginReport) -> Result<(), CollectorError> {
    let body = serde_json::to_vec(report)?;
    ask(endpoint, Method::PUT, "/v1/plugin", body.into()).await.map(drop)
}

/// Tells the collector that this plugin ends.
///
/// # Errors
/// [`CollectorError`], if the collector does not take it.
pub(crate) async fn leave(endpoint: &Endpoint) -> Result<(), CollectorError> {
    ask(endpoint, Method::DELETE, "/v1/plugin", Bytes::new()).await.map(drop)
}

async fn ask(endpoint: &Endpoint, method: Method, path: &str, body: Bytes) -> Result<Bytes, CollectorError> {
    let unreachable = |reason: String| CollectorError::Unreachable { endpoint: endpoint.clone(), reason };
    let request =
        Request::builder().method(method).uri(path).header("host", "collector").body(Full::new(body));
    let request = request.map_err(|error| unreachable(error.to_string()))?;
    let exchange = async {
        match endpoint {
            Endpoint::Tcp(address) => send(request, TcpStream::connect(address).await?).await,
            Endpoint::Unix(path) => send(request, UnixStream::connect(path).await?).await,
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    let answer = answer.map_err(|_| unreachable(format!("no answer in {TIMEOUT:?}")))?;
    let (status, body) = answer.map_err(|error| unreachable(error.to_string()))?;
    if status != StatusCode::OK {
        return Err(CollectorError::Status(status));
    }
    Ok(body)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn send(
    request: Request<Full<Bytes>>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(StatusCode, Bytes), Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
        drop(sender);
        Ok::<_, Failure>((head.status, body))
    };
    // The connection does the work of the exchange, and ends after it.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}

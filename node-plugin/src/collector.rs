//! Asks the node's collector for the state of its boards.

use fpga_core::node_state::{NodeState, Unreadable, decode};
use fpga_hook::Endpoint;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest time that the collector may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// The reason why the state of the boards is unknown.
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
}

/// The state of the boards as the collector knows it now.
///
/// # Errors
/// [`CollectorError`], if there is no state.
pub(crate) async fn state(endpoint: &Endpoint) -> Result<NodeState, CollectorError> {
    let unreachable = |reason: String| CollectorError::Unreachable { endpoint: endpoint.clone(), reason };
    let exchange = async {
        match endpoint {
            Endpoint::Tcp(address) => get(TcpStream::connect(address).await?).await,
            Endpoint::Unix(path) => get(UnixStream::connect(path).await?).await,
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    let answer = answer.map_err(|_| unreachable(format!("no answer in {TIMEOUT:?}")))?;
    let (status, body) = answer.map_err(|error| unreachable(error.to_string()))?;
    if status != StatusCode::OK {
        return Err(CollectorError::Status(status));
    }
    Ok(decode(&String::from_utf8_lossy(&body))?)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(StatusCode, Bytes), Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/v1/state").header("host", "collector").body(Empty::<Bytes>::new())?;
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

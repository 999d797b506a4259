//! One HTTP/1.1 connection to the collector, over TCP or a unix socket, for one request at a time with a time limit.

use crate::config::{Config, Endpoint};
use fpga_net::token_file::{Token, TokenError, TokenFile};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Maximum length of an answer in bytes; acknowledgements and errors are far shorter.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Maximum pause that a collector can ask for. One that asks for more is faulty, and events are merged meanwhile.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum time for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection, which is made when it is needed.
pub(crate) struct Connection {
    endpoint: Endpoint,
    /// File with the token to show, if any.
    token_file: Option<TokenFile>,
    request_timeout: Duration,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// A request that may be sent several times.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The pause that the collector asks for.
    pub(crate) retry_after: Option<Duration>,
    /// The body, for the log.
    pub(crate) text: String,
}

/// Whether a connection existed or had to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Kept,
    /// The connection is new, so the collector may be another process.
    Made,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error("no answer in time")]
    Timeout,
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    #[error("the answer can't be read: {0}")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the request can't be made: {0}")]
    Request(#[from] hyper::http::Error),
}

impl Connection {
    /// A connection that is not made yet.
    pub(crate) fn new(config: &Config) -> Self {
        let token_file = match &config.endpoint {
            Endpoint::Tcp(_) => config.token_file.as_ref().map(TokenFile::new),
            Endpoint::Unix(_) => None,
        };
        let (endpoint, request_timeout) = (config.endpoint.clone(), config.request_timeout);
        Self { endpoint, token_file, request_timeout, sender: None }
    }

    /// Whether a connection exists, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Connects if there is no connection; `on_close` is called when the new one ends.
    pub(crate) async fn open(&mut self, on_close: impl FnOnce() + 'static) -> Result<Link, Failure> {
        if self.is_open() {
            return Ok(Link::Kept);
        }
        self.sender = None;
        let connecting = connect(&self.endpoint, on_close);
        self.sender = Some(timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| Failure::Timeout)??);
        Ok(Link::Made)
    }

    /// Sends `call` and reads the answer. A failure ends the connection.
    pub(crate) async fn send(&mut self, call: &Call) -> Result<Answer, Failure> {
        let result =
            timeout(self.request_timeout, self.try_send(call)).await.unwrap_or(Err(Failure::Timeout));
        if result.is_err() {
            self.sender = None;
        }
        result
    }

    async fn try_send(&mut self, call: &Call) -> Result<Answer, Failure> {
        let Some(sender) = &mut self.sender else {
            return Err(Failure::Connect(std::io::ErrorKind::NotConnected.into()));
        };
        let token = self.token_file.as_ref().map(TokenFile::read).transpose()?;
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path.as_str())
            .header(hyper::header::HOST, self.endpoint.host())
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(call.body.clone()))?;
        if let Some(token) = token {
            request.headers_mut().insert(hyper::header::AUTHORIZATION, authorization(&token)?);
        }
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let retry_after = response.headers().get(hyper::header::RETRY_AFTER).and_then(retry_after);
        let body =
            Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await.map_err(Failure::Answer)?;
        Ok(Answer { status, retry_after, text: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
    }
}

/// The header that shows the token.
fn authorization(token: &Token) -> Result<HeaderValue, hyper::http::Error> {
    let mut header = HeaderValue::try_from(token.header())?;
    // Keeps the token out of debug output.
    header.set_sensitive(true);
    Ok(header)
}

/// The pause in a `Retry-After` in seconds. The collector never sends a date.
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let seconds = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

async fn connect(
    endpoint: &Endpoint,
    on_close: impl FnOnce() + 'static,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address.as_str()).await.map_err(Failure::Connect)?;
            stream.set_nodelay(true).map_err(Failure::Connect)?;
            handshake(stream, on_close).await
        }
        Endpoint::Unix(path) => {
            handshake(UnixStream::connect(path).await.map_err(Failure::Connect)?, on_close).await
        }
    }
}

async fn handshake<S>(
    stream: S,
    on_close: impl FnOnce() + 'static,
) -> Result<SendRequest<Full<Bytes>>, Failure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(async move {
        // The request that was under way gets the error.
        let _ = connection.await;
        on_close();
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_token_and_its_debug_output_has_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
        let header = authorization(&TokenFile::new(file.path()).read().unwrap()).unwrap();
        assert_eq!(header.as_bytes(), b"Bearer 0123456789abcdef");
        assert!(!format!("{header:?}").contains("0123"), "{header:?}");
    }

    #[test]
    fn a_pause_is_asked_for_in_seconds_and_is_never_too_long() {
        let asked = |text| retry_after(&HeaderValue::from_static(text));
        assert_eq!(asked("2"), Some(Duration::from_secs(2)));
        assert_eq!(asked("18446744073709551615"), Some(MAX_RETRY_AFTER));
        for text in ["", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "18446744073709551616"] {
            assert_eq!(asked(text), None, "{text}");
        }
    }
}

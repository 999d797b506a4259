//! The client's side of one call: connect, introduce the node, then send one update at a time.
//!
//! Hardly ever more than two updates are on their way. So a slow replica gets fewer updates, but each is recent.

use crate::access::Access;
use crate::limits::{ANSWER_EVERY, ANSWER_TIMEOUT, MAX_MESSAGE_BYTES};
use crate::v1::node_stream_client::NodeStreamClient;
use crate::v1::{Answer, Introduction, Update};
use fpga_net::tls::{ClientFiles, ConnectError, HTTP_2};
use fpga_net::token_file::TokenError;
use hyper_util::rt::TokioIo;
use std::{fmt, io};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};

/// Flow control windows, in bytes. As a rule two messages are on their way.
const WINDOW_BYTES: u32 = 128 * 1024;

/// The address of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// `http://HOST:PORT`, or `https://` for TLS.
    pub uri: Uri,
    /// The name that the replica's certificate must have, if that is not the host.
    pub name: Option<String>,
}

/// The credentials of a collector, and the authorities that it trusts.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The token to show, if any.
    pub access: Access,
    /// The TLS files, for replicas behind `https://`.
    pub tls: Option<ClientFiles>,
}

/// One call to a replica.
#[derive(Debug)]
pub struct NodeStream {
    updates: mpsc::Sender<Update>,
    answers: Streaming<Answer>,
    answered_at: Option<Instant>,
}

/// Reason why a call ended or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// No connection to the replica could be made.
    #[error("it can't be reached: {0}")]
    Unreachable(String),
    /// The replica did not answer within [`ANSWER_TIMEOUT`].
    #[error("it did not answer in {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout,
    /// The replica ended the call.
    #[error("it ended the stream: {}", .0.message())]
    Ended(Box<Status>),
    /// The TLS handshake failed.
    #[error("no TLS: {0}")]
    Tls(#[source] ConnectError),
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl StreamError {
    /// The gRPC code with which the replica ended the call; `None` if the call ended otherwise.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Ended(status) => Some(status.code()),
            Self::Unreachable(_) | Self::Timeout | Self::Tls(_) | Self::Token(_) => None,
        }
    }
}

impl NodeStream {
    /// Begins a call to the replica at `address` for the node that `introduction` names.
    ///
    /// # Errors
    /// [`StreamError`] for the reason: no connection, no token, no answer in time, or the replica's refusal.
    pub async fn open(
        address: &Address,
        credentials: &Credentials,
        introduction: Introduction,
    ) -> Result<Self, StreamError> {
        // The endpoint's connect timeout covers only the TCP connection; this one covers the handshakes as well.
        let channel = timeout(ANSWER_TIMEOUT * 2, connect(address, credentials.tls.as_ref())).await;
        let channel = channel.map_err(|_| StreamError::Timeout)??;
        let mut client = NodeStreamClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (updates, receiver) = mpsc::channel(1);
        // The server answers the call only when it knows the caller, so the introduction must be sent before the
        // answer.
        let hello = Update { introduction: Some(introduction), ..Update::default() };
        updates.try_send(hello).map_err(|_| StreamError::Timeout)?;
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Access::Token(file) = &credentials.access {
            let header = file.read()?.header();
            let mut header: MetadataValue<Ascii> =
                header.parse().map_err(|_| StreamError::Unreachable("the token is no header".to_owned()))?;
            header.set_sensitive(true);
            request.metadata_mut().insert("authorization", header);
        }
        let answers =
            timeout(ANSWER_TIMEOUT, client.report(request)).await.map_err(|_| StreamError::Timeout)?;
        let answers = answers.map_err(|status| StreamError::Ended(Box::new(status)))?.into_inner();
        Ok(Self { updates, answers, answered_at: None })
    }

    /// Sends `state`, an encoded node state. Waits for the answer if the last answer is at least [`ANSWER_EVERY`]
    /// old.
    ///
    /// # Errors
    /// [`StreamError`]; the call is over then.
    pub async fn update(&mut self, state: String) -> Result<Option<Answer>, StreamError> {
        if self.answered_at.is_some_and(|answered_at| answered_at.elapsed() < ANSWER_EVERY) {
            return self.tell(state).await.map(|()| None);
        }
        self.send(state).await.map(Some)
    }

    /// Sends `state`, an encoded node state, and waits for the answer.
    ///
    /// # Errors
    /// [`StreamError`]; the call is over then.
    pub async fn send(&mut self, state: String) -> Result<Answer, StreamError> {
        let update = Update { introduction: None, state: state.into(), unanswered: false };
        let exchange = async {
            // If the receiver is gone, the reason is among the answers.
            let _ = self.updates.send(update).await;
            next(&mut self.answers).await
        };
        let answer = timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or(Err(StreamError::Timeout))?;
        self.answered_at = Some(Instant::now());
        Ok(answer)
    }

    /// Sends `state`, for which no answer is requested.
    ///
    /// # Errors
    /// [`StreamError`]; the call is over then. After the replica has ended the call, one update may still succeed,
    /// and the error of the next may lack the reason; a new call gets the reason.
    pub async fn tell(&mut self, state: String) -> Result<(), StreamError> {
        let update = Update { introduction: None, state: state.into(), unanswered: true };
        let exchange = async {
            match self.updates.send(update).await {
                Ok(()) => Ok(()),
                // The reason is among the answers.
                Err(_) => next(&mut self.answers).await.map(drop),
            }
        };
        timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or(Err(StreamError::Timeout))
    }
}

async fn next(answers: &mut Streaming<Answer>) -> Result<Answer, StreamError> {
    match answers.message().await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(StreamError::Ended(Box::new(Status::new(Code::Unavailable, "it is ending")))),
        Err(status) => Err(StreamError::Ended(Box::new(status))),
    }
}

impl From<Uri> for Address {
    fn from(uri: Uri) -> Self {
        Self { uri, name: None }
    }
}

impl From<Access> for Credentials {
    fn from(access: Access) -> Self {
        Self { access, tls: None }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => write!(f, "{}", self.uri),
            Some(name) => write!(f, "{} ({name})", self.uri),
        }
    }
}

async fn connect(address: &Address, tls: Option<&ClientFiles>) -> Result<Channel, StreamError> {
    let unreachable = |error: tonic::transport::Error| StreamError::Unreachable(causes(&error));
    let endpoint = Endpoint::from(address.uri.clone())
        .connect_timeout(ANSWER_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .buffer_size(4);
    if address.uri.scheme_str() != Some("https") {
        return endpoint.connect().await.map_err(unreachable);
    }
    let no_ca = || StreamError::Unreachable("it wants TLS, and no authority is trusted".to_owned());
    let tls = tls.ok_or_else(no_ca)?;
    let no_host = || StreamError::Unreachable(format!("{} has no host", address.uri));
    let host = address.uri.host().ok_or_else(no_host)?;
    let port = address.uri.port_u16().unwrap_or(443);
    let socket = TcpStream::connect((host.trim_start_matches('[').trim_end_matches(']'), port)).await;
    let socket = socket.map_err(|error| StreamError::Unreachable(error.to_string()))?;
    // An error costs only latency.
    let _ = socket.set_nodelay(true);
    let name = address.name.as_deref().unwrap_or(host);
    let stream = tls.connect(socket, name, HTTP_2).await.map_err(StreamError::Tls)?;
    // The channel gets this one connection and no other: after the end of a call, the caller begins a new one.
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { stream }
    });
    endpoint.connect_with_connector(connector).await.map_err(unreachable)
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

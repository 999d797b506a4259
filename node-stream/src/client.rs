//! The client's half of one call: connect, introduce, then one update at a time.
//!
//! There is never more than one update on its way: a replica that is slow hears less often, and what it hears is new.

use crate::limits::{MAX_MESSAGE_BYTES, PATIENCE};
use crate::token::{Access, TokenError};
use crate::v1::node_stream_client::NodeStreamClient;
use crate::v1::{Answer, Introduction, Update};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};

/// Flow control windows: there is one message on its way at most.
const WINDOW_BYTES: u32 = 128 * 1024;

/// One call.
#[derive(Debug)]
pub struct NodeStream {
    updates: mpsc::Sender<Update>,
    answers: Streaming<Answer>,
}

/// Why a call ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is nobody, or no way there.
    #[error("it can't be reached: {0}")]
    Unreachable(String),
    /// It did not answer in [`PATIENCE`].
    #[error("it did not answer in {} s", PATIENCE.as_secs())]
    Timeout,
    /// It ended the call.
    #[error("it ended the stream: {}", .0.message())]
    Ended(Box<Status>),
    /// There is no token to show.
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl StreamError {
    /// The code with which the replica ended the call, if it did.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Ended(status) => Some(status.code()),
            Self::Unreachable(_) | Self::Timeout | Self::Token(_) => None,
        }
    }
}

impl NodeStream {
    /// Begins a call to the replica at `uri` for the node that `introduction` names.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn open(uri: Uri, access: &Access, introduction: Introduction) -> Result<Self, StreamError> {
        let unreachable = |error: tonic::transport::Error| StreamError::Unreachable(causes(&error));
        let channel = Endpoint::from(uri)
            .connect_timeout(PATIENCE)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .buffer_size(4);
        // The connect timeout ends with the connection; what comes after has its own.
        let channel = timeout(PATIENCE * 2, channel.connect()).await.map_err(|_| StreamError::Timeout)?;
        let mut client = NodeStreamClient::new(channel.map_err(unreachable)?)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (updates, receiver) = mpsc::channel(1);
        // The extender answers the call when it knows who calls: the introduction may not wait for that.
        let hello = Update { introduction: Some(introduction), state: String::new() };
        updates.try_send(hello).map_err(|_| StreamError::Timeout)?;
        let mut request = Request::new(ReceiverStream::new(receiver));
        if let Access::Token(file) = access {
            let header = file.read()?.header();
            let mut header: MetadataValue<Ascii> =
                header.parse().map_err(|_| StreamError::Unreachable("the token is no header".to_owned()))?;
            header.set_sensitive(true);
            request.metadata_mut().insert("authorization", header);
        }
        let answers = timeout(PATIENCE, client.report(request)).await.map_err(|_| StreamError::Timeout)?;
        let answers = answers.map_err(|status| StreamError::Ended(Box::new(status)))?.into_inner();
        Ok(Self { updates, answers })
    }

    /// Sends `state`, an encoded node state, and waits for the answer.
    ///
    /// # Errors
    /// [`StreamError`]; the call is over then.
    pub async fn send(&mut self, state: String) -> Result<Answer, StreamError> {
        let exchange = async {
            let update = Update { introduction: None, state };
            // A receiver that is gone has left its reason among the answers.
            let _ = self.updates.send(update).await;
            match self.answers.message().await {
                Ok(Some(answer)) => Ok(answer),
                Ok(None) => Err(StreamError::Ended(Box::new(Status::new(Code::Unavailable, "it is ending")))),
                Err(status) => Err(StreamError::Ended(Box::new(status))),
            }
        };
        timeout(PATIENCE, exchange).await.unwrap_or(Err(StreamError::Timeout))
    }
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

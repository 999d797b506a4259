//! The sources of a manager's messages.

use crate::wire::command_ring::{RingError, RingReader};
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind;
use std::sync::Arc;
use tonic::{Status, Streaming};

/// The sources of a manager's messages: the stream, and the command ring if there is one. The end of the stream is
/// the end of the session.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) stream: Streaming<v1::ServerMessage>,
    pub(crate) ring: Option<Arc<RingReader>>,
    /// A Yield that came while the session was opened. It is the next message.
    early: Option<v1::ServerMessage>,
}

/// An event of an [`Inbox`].
#[derive(Debug)]
pub(crate) enum InboxEvent {
    /// The manager has rung, or the ring failed. There may be messages or room in the ring.
    Ring(Result<(), RingError>),
    /// A message, the end, or an error of the stream.
    Stream(Result<Option<v1::ServerMessage>, Status>),
}

impl Inbox {
    /// The messages of a stream.
    pub(crate) fn of(stream: Streaming<v1::ServerMessage>) -> Self {
        Self { stream, ring: None, early: None }
    }

    /// Waits for the reply to the first call of the session. A lease may be recalled meanwhile; `None` if the manager says
    /// anything else.
    pub(crate) async fn reply_to(&mut self, call: u64) -> Result<Option<v1::Reply>, Status> {
        loop {
            match self.stream.message().await?.and_then(|message| message.kind) {
                Some(Kind::Reply(reply)) if reply.id == call => return Ok(Some(reply)),
                Some(Kind::Yield(_)) if self.early.is_none() => {
                    self.early = Some(v1::ServerMessage { kind: Some(Kind::Yield(v1::Yield {})) });
                }
                _ => return Ok(None),
            }
        }
    }

    /// Waits for the next event.
    pub(crate) async fn next_event(&mut self) -> InboxEvent {
        let Self { stream, ring, early } = self;
        if let Some(message) = early.take() {
            return InboxEvent::Stream(Ok(Some(message)));
        }
        match ring {
            None => InboxEvent::Stream(stream.message().await),
            Some(ring) => tokio::select! {
                biased;
                rung = ring.rung() => InboxEvent::Ring(rung),
                message = stream.message() => InboxEvent::Stream(message),
            },
        }
    }
}

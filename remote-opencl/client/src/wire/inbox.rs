//! The sources of a manager's messages.

use crate::wire::command_ring::{RingError, RingReader};
use fpga_protocol::v1;
use std::sync::Arc;
use tonic::{Status, Streaming};

/// The sources of a manager's messages: the stream, and the command ring if there is one. The end of the stream is
/// the end of the session.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) stream: Streaming<v1::ServerMessage>,
    pub(crate) ring: Option<Arc<RingReader>>,
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
    /// Waits for the next event.
    pub(crate) async fn next_event(&mut self) -> InboxEvent {
        let Self { stream, ring } = self;
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

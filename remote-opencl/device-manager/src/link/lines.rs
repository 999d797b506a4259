//! Messages to the client over one connection: from the session directly, or through a [`Link`], which outlives the
//! connection.

use super::{Handshake, Link};
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind;
use fpga_session::outgoing::{Messages, Said};
use futures::{FutureExt as _, Stream};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tonic::Status;

type Item = Result<Said, Status>;

/// The sending direction of one connection of a link.
#[derive(Debug)]
pub struct Line {
    link: Arc<Link>,
    connection: u64,
    handshake: Option<Handshake>,
    first: Option<v1::Welcome>,
}

/// Messages to the client of one connection. They come from the session until a [`Line`] arrives.
#[derive(Debug)]
pub struct Lines {
    direct: Messages,
    linked: Option<Line>,
    link: Option<oneshot::Receiver<Line>>,
}

impl Line {
    pub(super) fn new(
        link: Arc<Link>,
        connection: u64,
        handshake: Option<Handshake>,
        first: Option<v1::Welcome>,
    ) -> Self {
        Self { link, connection, handshake, first }
    }

    /// Attaches a value that is dropped with the line, or when another connection replaces it.
    #[must_use]
    pub fn carrying(self, carried: impl Any + Send + Sync) -> Self {
        let mut state = self.link.state.lock();
        if state.connection == self.connection {
            state.carried = Some(Box::new(carried));
        }
        drop(state);
        self
    }

    fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let message = |kind| Poll::Ready(Some(Ok(Said::Message(v1::ServerMessage { kind: Some(kind) }))));
        if let Some(welcome) = self.first.take() {
            return message(Kind::Welcome(welcome));
        }
        let mut state = self.link.state.lock();
        if state.connection != self.connection {
            // Another connection has replaced this one.
            return Poll::Ready(None);
        }
        if state.ack_is_due() {
            (state.acknowledged, state.unacknowledged_bytes) = (state.received, 0);
            return message(Kind::Ack(v1::Ack { received: state.received }));
        }
        let index = usize::try_from(state.cursor - state.first).unwrap_or(usize::MAX);
        if let Some(again) = state.kept.get(index).map(|(said, _)| said.clone()) {
            state.cursor += 1;
            return Poll::Ready(Some(Ok(again)));
        }
        match Pin::new(&mut state.source).poll_next(context) {
            Poll::Pending => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Poll::Ready(Some(Ok(mut said))) => {
                if let Said::Message(v1::ServerMessage { kind: Some(Kind::Welcome(welcome)) }) = &mut said {
                    // The first message of the session has no number: a client that lacks it has no key to resume
                    // with.
                    if let Some(Handshake { key, grace }) = self.handshake.take() {
                        welcome.resume_key = key;
                        welcome.grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                    }
                } else if state.resumable.is_ok() {
                    state.keep(&said);
                }
                Poll::Ready(Some(Ok(said)))
            }
            Poll::Ready(ended) => Poll::Ready(ended),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        let carried = if state.connection == self.connection { state.carried.take() } else { None };
        drop(state);
        drop(carried);
    }
}

impl Lines {
    /// Sends the messages of `direct`, until a line arrives through the returned sender.
    #[must_use]
    pub fn new(direct: Messages) -> (Self, oneshot::Sender<Line>) {
        let (sender, link) = oneshot::channel();
        (Self { direct, linked: None, link: Some(link) }, sender)
    }
}

impl Stream for Lines {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        if let Some(link) = &mut this.link
            && let Poll::Ready(line) = link.poll_unpin(context)
        {
            this.linked = line.ok();
            this.link = None;
        }
        match &mut this.linked {
            Some(line) => line.poll_said(context),
            None => Pin::new(&mut this.direct).poll_next(context),
        }
    }
}

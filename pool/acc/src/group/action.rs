//! An action that was submitted.

use crate::engine::ended;
use crate::error::Error;
use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// An action that was submitted: a future of its output. Dropping it gives the action up: one that waits does not run, and
/// what comes out of one that runs is thrown away.
#[derive(Debug)]
#[must_use = "an action that nobody waits for is given up"]
pub struct Action(oneshot::Receiver<Result<Bytes, Error>>);

impl Action {
    pub(crate) fn new(output: oneshot::Receiver<Result<Bytes, Error>>) -> Self {
        Self(output)
    }
}

impl Future for Action {
    type Output = Result<Bytes, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|output| output.unwrap_or_else(|_| Err(ended())))
    }
}

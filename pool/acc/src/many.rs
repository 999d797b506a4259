//! Jobs that wait for their first slots together.

use crate::error::Error;
use crate::job::Job;
use crate::opening::Opening;
use crate::status::Status;
use futures::future::{TryJoinAll, try_join_all};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch;

/// Jobs that wait for their first slots together: a future of all [`Job`]s. Dropping it gives all of them up.
#[must_use = "jobs that nobody waits for are given up"]
pub struct OpeningMany {
    all: Result<TryJoinAll<Opening>, Error>,
    status: Option<watch::Receiver<Status>>,
}

impl OpeningMany {
    pub(crate) fn new(openings: Result<Vec<Opening>, Error>) -> Self {
        let status = openings.as_ref().ok().and_then(|openings| openings.first().map(Opening::status));
        Self { all: openings.map(try_join_all), status }
    }

    /// How far the first of the jobs is, and why all of them wait; the receiver tells of changes. `None` if no job begins.
    #[must_use]
    pub fn status(&self) -> Option<watch::Receiver<Status>> {
        self.status.clone()
    }
}

impl Future for OpeningMany {
    type Output = Result<Vec<Job>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.all {
            Ok(all) => Pin::new(all).poll(context),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

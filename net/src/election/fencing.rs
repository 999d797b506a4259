//! A fencing token: a number in the Lease that only its holder replaces, by compare-and-swap.
//!
//! What two replicas that both think that they lead do to a third party is told apart by their tokens.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Annotation of the Lease with the token.
pub const FENCING_TOKEN: &str = "fpga-scheduling.io/fencing-token";

/// Maximum time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The fencing token in a Lease.
#[derive(Debug, Clone)]
pub struct Fencing(mpsc::Sender<Request>);

/// The reason why a token is not read or replaced.
#[derive(Debug, thiserror::Error)]
pub enum FencingError {
    /// Another replica holds the Lease, or the race has ended.
    #[error("this replica does not hold the lease")]
    NotHeld,
    /// The Lease has another token.
    #[error("the lease has the fencing token {found}")]
    Other {
        /// The token.
        found: u64,
    },
    /// The annotation is no number.
    #[error("the lease's annotation {FENCING_TOKEN} is no number: remove it when no replica runs")]
    Unreadable,
    /// Somebody else changed the Lease at the same time, or the API server's error.
    #[error("the lease is not written")]
    Api(#[from] kube::Error),
    /// The API server did not answer.
    #[error("the API server does not answer")]
    Timeout,
}

/// A request to read or replace the token.
#[derive(Debug)]
pub(super) struct Request {
    change: Option<Change>,
    answer: oneshot::Sender<Result<u64, FencingError>>,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    expected: u64,
    next: u64,
}

/// The requests that the race carries out.
#[derive(Debug)]
pub(super) struct Requests(mpsc::Receiver<Request>);

impl Fencing {
    /// The token; 0 in a Lease that never had one.
    ///
    /// # Errors
    /// [`FencingError`].
    pub async fn read(&self) -> Result<u64, FencingError> {
        self.request(None).await
    }

    /// Replaces the token if it is the expected one and this replica holds the Lease.
    ///
    /// # Errors
    /// [`FencingError`]. After [`FencingError::Api`] and [`FencingError::Timeout`] the token may be replaced
    /// nevertheless.
    pub async fn replace(&self, expected: u64, next: u64) -> Result<(), FencingError> {
        self.request(Some(Change { expected, next })).await.map(drop)
    }

    async fn request(&self, change: Option<Change>) -> Result<u64, FencingError> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Request { change, answer }).await.map_err(|_| FencingError::NotHeld)?;
        answered.await.map_err(|_| FencingError::NotHeld)?
    }
}

impl Requests {
    pub(super) fn channel() -> (Fencing, Self) {
        let (send, receive) = mpsc::channel(1);
        (Fencing(send), Self(receive))
    }

    /// No requests ever.
    pub(super) fn none() -> Self {
        Self::channel().1
    }

    /// The next request; `None` if there will be none.
    pub(super) async fn next(&mut self) -> Option<Request> {
        self.0.recv().await
    }
}

impl Request {
    /// Carries the request out as the replica `me`.
    pub(super) async fn carry_out(self, leases: &Api<Lease>, name: &str, me: &str) {
        let done = timeout(REQUEST_TIMEOUT, carry_out(leases, name, me, self.change)).await;
        // Whoever asked may have gone.
        let _ = self.answer.send(done.unwrap_or(Err(FencingError::Timeout)));
    }
}

async fn carry_out(
    leases: &Api<Lease>,
    name: &str,
    me: &str,
    change: Option<Change>,
) -> Result<u64, FencingError> {
    let mut lease = leases.get_opt(name).await?.ok_or(FencingError::NotHeld)?;
    if lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) != Some(me) {
        return Err(FencingError::NotHeld);
    }
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let found = match annotations.get(FENCING_TOKEN) {
        Some(text) => text.parse().map_err(|_| FencingError::Unreadable)?,
        None => 0,
    };
    let Some(Change { expected, next }) = change else { return Ok(found) };
    if found != expected {
        return Err(FencingError::Other { found });
    }
    annotations.insert(FENCING_TOKEN.to_owned(), next.to_string());
    // The Lease has its version: a write that another one precedes fails.
    leases.replace(name, &PostParams::default(), &lease).await?;
    Ok(next)
}

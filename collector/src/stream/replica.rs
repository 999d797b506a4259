//! The stream to one replica, which is opened again after every failure, with growing pauses.

use super::shared::Shared;
use crate::metrics::{StreamFailure, StreamOutcome};
use fpga_net::backoff::Backoff;
use fpga_node_stream::client::{Address, Credentials, NodeStream, StreamError};
use fpga_node_stream::v1::{Introduction, Verdict};
use prometheus_client::metrics::gauge::Gauge;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tonic::Code;
use tracing::{debug, info, warn};

/// The first and the longest pause after failures.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// The stream to one replica.
pub struct Replica {
    shared: Arc<Shared>,
    address: Address,
    credentials: Arc<Credentials>,
    backoff: Backoff,
}

impl Replica {
    pub fn new(shared: Arc<Shared>, address: Address, credentials: Arc<Credentials>) -> Self {
        Self { shared, address, credentials, backoff: Backoff::new(BACKOFF.0, BACKOFF.1) }
    }

    /// Opens the stream and sends states, again and again.
    pub async fn run(mut self) {
        loop {
            let Some(uid) = self.uid().await else { return };
            let introduction = Introduction { node: self.shared.node.clone(), uid };
            let opened = NodeStream::open(&self.address, &self.credentials, introduction).await;
            let error = match opened {
                Ok(stream) => {
                    debug!(replica = %self.address, "Stream begins");
                    let _open = Open::count(self.shared.metrics.streams.clone());
                    self.speak(stream).await
                }
                Err(error) => error,
            };
            self.shared.metrics.count_stream_failure(kind(&error));
            if error.code() == Some(Code::FailedPrecondition) {
                // The node object was created again. The replica's error reveals this before the next write of the
                // annotation would.
                self.shared.link.recheck.notify_one();
            }
            let is_first = self.backoff.is_reset();
            let pause = self.backoff.pause(0.5..1.5);
            if is_first {
                info!(replica = %self.address, %error, ?pause, "No stream to a replica");
            } else {
                warn!(replica = %self.address, %error, ?pause, "No stream to a replica");
            }
            sleep(pause).await;
        }
    }

    /// The node's UID; waits until it is known.
    async fn uid(&self) -> Option<String> {
        let mut uid = self.shared.link.uid.subscribe();
        let known = uid.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    /// Sends each publication, from the newest on, until an error occurs.
    async fn speak(&mut self, mut stream: NodeStream) -> StreamError {
        let mut latest = self.shared.latest.subscribe();
        self.shared.joined.notify_one();
        loop {
            // The sender is in `shared`, which this task holds, so this never fails.
            if latest.changed().await.is_err() {
                return StreamError::Timeout;
            }
            let Some(state) = latest.borrow_and_update().clone() else { continue };
            let answer = match stream.update(state.to_string()).await {
                Ok(Some(answer)) => answer,
                Ok(None) => {
                    self.shared.metrics.count_update(StreamOutcome::Unanswered);
                    continue;
                }
                Err(error) => return error,
            };
            let outcome = match answer.verdict() {
                Verdict::Taken => {
                    self.shared.link.acknowledged.note(&self.address.uri, &answer, Instant::now());
                    self.backoff.reset();
                    StreamOutcome::Taken
                }
                Verdict::Outdated => StreamOutcome::Outdated,
                Verdict::Unreadable | Verdict::Unspecified => StreamOutcome::Unreadable,
            };
            self.shared.metrics.count_update(outcome);
        }
    }
}

/// Counts an open stream in a gauge while it exists.
struct Open(Gauge);

impl Open {
    fn count(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn kind(error: &StreamError) -> StreamFailure {
    match (error, error.code()) {
        (StreamError::Unreachable(_), _) => StreamFailure::Unreachable,
        (StreamError::Tls(_), _) => StreamFailure::Tls,
        (StreamError::Timeout, _) => StreamFailure::Timeout,
        (StreamError::Token(_), _) | (_, Some(Code::Unauthenticated | Code::PermissionDenied)) => {
            StreamFailure::Token
        }
        (_, Some(Code::NotFound | Code::FailedPrecondition)) => StreamFailure::Node,
        (_, Some(Code::Aborted)) => StreamFailure::Replaced,
        _ => StreamFailure::Ended,
    }
}

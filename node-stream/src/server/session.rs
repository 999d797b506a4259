//! A stream: reads updates at a bounded rate, and answers those that ask for an answer.

use super::connection::Call;
use super::receiver::{StreamRefusal, Taken};
use super::streams::Streams;
use crate::limits::{IDLE_TIMEOUT, MIN_SPACING};
use crate::v1::{Answer, Introduction, Update, Verdict};
use fpga_core::node_state::codec::Unreadable;
use fpga_core::node_state::{NodeState, decode};
use fpga_net::proof;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::debug;

/// A stream whose collector has introduced itself and is authenticated.
pub struct Session {
    streams: Arc<Streams>,
    node: Arc<str>,
    uid: String,
    updates: Streaming<Update>,
    registration: u64,
    replaced: oneshot::Receiver<()>,
    /// Earliest time at which the next update is read.
    not_before: Instant,
    /// Time at which the stream ends, so that the collector authenticates again.
    proved_until: Instant,
    _call: Option<Call>,
}

impl Session {
    /// Begins the stream, which replaces an older stream of the same node.
    pub fn begin(
        streams: Arc<Streams>,
        who: Introduction,
        updates: Streaming<Update>,
        call: Option<Call>,
    ) -> Self {
        let Introduction { node, uid } = who;
        let node: Arc<str> = node.into();
        let (registration, replaced) = streams.register(&node);
        debug!(node = &*node, "Stream begins");
        let not_before = Instant::now();
        let proved_until = not_before + proof::duration(registration);
        Self { streams, node, uid, updates, registration, replaced, not_before, proved_until, _call: call }
    }

    /// The answer to the next update that asks for one; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Result<Answer, Status>> {
        loop {
            if Instant::now() >= self.proved_until {
                debug!(node = &*self.node, "A stream ends so that its token and certificate are shown anew");
                return None;
            }
            let update = match self.read().await? {
                Ok(update) => update,
                Err(status) => return Some(Err(status)),
            };
            let answer = self.take(&update);
            if !update.unanswered || answer.is_err() {
                return Some(answer);
            }
        }
    }

    /// The next update; `None` when the collector has ended the stream.
    async fn read(&mut self) -> Option<Result<Update, Status>> {
        // Unread updates fill the flow control window, which makes the collector wait.
        let read = async {
            if Instant::now() < self.not_before {
                sleep_until(self.not_before).await;
            }
            timeout(IDLE_TIMEOUT, self.updates.message()).await
        };
        let update = tokio::select! {
            update = read => update,
            _ = &mut self.replaced => return Some(Err(self.streams.refuse(StreamRefusal::Replaced))),
        };
        self.not_before = Instant::now() + MIN_SPACING;
        match update {
            Err(_) => Some(Err(self.streams.refuse(StreamRefusal::Silent))),
            Ok(Ok(Some(update))) => Some(Ok(update)),
            // The collector ended the stream, or the connection broke; either way it connects again.
            Ok(Ok(None) | Err(_)) => None,
        }
    }

    fn take(&self, update: &Update) -> Result<Answer, Status> {
        let receiver = &self.streams.receiver;
        let verdict = match read(&update.state) {
            Err(reason) => {
                debug!(node = &*self.node, %reason, "A streamed state can't be read");
                receiver.unreadable_state();
                Verdict::Unreadable
            }
            Ok(state) => match receiver.take(&self.node, &self.uid, state) {
                Ok(Taken::Yes) => Verdict::Taken,
                Ok(Taken::Outdated) => Verdict::Outdated,
                Err(unknown) => return Err(self.streams.refuse(unknown.into())),
            },
        };
        let intervals = self.streams.intervals();
        Ok(Answer {
            verdict: verdict.into(),
            write_interval_ms: intervals.write.0,
            update_interval_ms: intervals.update.0,
        })
    }
}

fn read(state: &[u8]) -> Result<NodeState, Unreadable> {
    decode(std::str::from_utf8(state).map_err(|error| Unreadable::Malformed(error.to_string()))?)
}

impl Drop for Session {
    fn drop(&mut self) {
        self.streams.unregister(&self.node, self.registration);
        debug!(node = &*self.node, "Stream ends");
    }
}

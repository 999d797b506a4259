//! The state that the streams share, with the task that publishes to all of them.

use super::acknowledged::Acknowledged;
use crate::metrics::Metrics;
use crate::owner::Handle;
use fpga_core::node_state;
use fpga_node_stream::limits::REFRESH_INTERVAL;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

/// Pause after an error of the owner.
const OWNER_PAUSE: Duration = Duration::from_secs(1);

/// The state that streams and publisher share.
#[derive(Debug, Clone)]
pub struct Link {
    /// The last answers of the replicas.
    pub acknowledged: Arc<Acknowledged>,
    /// UID of the node object, once it is known.
    pub uid: watch::Sender<Option<String>>,
    /// Notified when a replica knows the node under another UID.
    pub recheck: Arc<Notify>,
}

/// The state that the tasks of all replicas share.
pub struct Shared {
    pub node: String,
    pub owner: Handle,
    pub metrics: Metrics,
    pub link: Link,
    /// The last publication; open streams subscribe to it.
    pub latest: watch::Sender<Option<Arc<str>>>,
    /// Notified when a stream has opened and needs a state.
    pub joined: Notify,
}

impl Link {
    /// A link without answers and UID.
    pub fn new() -> Self {
        let uid = watch::Sender::new(None);
        Self { acknowledged: Arc::default(), uid, recheck: Arc::default() }
    }
}

impl Shared {
    /// Publishes to all open streams: soon after a change, but no more often than the replicas allow, and at least
    /// every [`REFRESH_INTERVAL`].
    pub async fn publish(&self) {
        let mut changes = self.owner.changes();
        loop {
            if self.latest.receiver_count() == 0 {
                self.joined.notified().await;
            }
            changes.mark_unchanged();
            let begin = Instant::now();
            match self.encoded().await {
                Some(text) => drop(self.latest.send_replace(Some(text))),
                None => sleep(OWNER_PAUSE).await,
            }
            let pace = self.link.acknowledged.update_interval(begin.into_std());
            sleep_until(begin + pace).await;
            tokio::select! {
                () = self.joined.notified() => {}
                () = sleep_until(begin + REFRESH_INTERVAL.max(pace)) => {}
                changed = changes.changed() => if changed.is_err() {
                    // The owner has ended, so the collector is ending as well.
                    sleep(OWNER_PAUSE).await;
                }
            }
        }
    }

    /// The current state, encoded as the next publication.
    async fn encoded(&self) -> Option<Arc<str>> {
        let state = match self.owner.publish().await {
            Ok(state) => state,
            Err(error) => {
                debug!(%error, "State not read");
                return None;
            }
        };
        match node_state::encode_whole(&state) {
            Ok(encoded) => Some(encoded.text.into()),
            Err(error) => {
                warn!(%error, "State can't be streamed");
                None
            }
        }
    }
}

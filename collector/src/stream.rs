//! The stream to the extender's replicas: the state of the node, sent shortly after a change.
//!
//! All replicas share one publication at a time. A slow replica misses some and gets the newest. The annotation is
//! still written: a replica that starts learns the cluster from it, and it remains where no stream is open.

mod acknowledged;
pub mod options;
mod replica;
mod targets;

pub use acknowledged::Acknowledged;

use crate::metrics::Metrics;
use crate::owner::Handle;
use crate::server::{self, Phase};
use fpga_core::node_state;
use fpga_node_stream::client::{Address, Credentials};
use fpga_node_stream::limits::REFRESH_INTERVAL;
use replica::Replica;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use targets::{Target, Transport};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

/// Interval of the search for replicas while some are known, and while none is.
const DISCOVERY_INTERVALS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(3));
/// Maximum time for one search.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
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

/// Streams the state of one node to the replicas.
pub struct Streamer {
    shared: Arc<Shared>,
    targets: Vec<Target>,
}

/// The state that the tasks of all replicas share.
struct Shared {
    node: String,
    owner: Handle,
    credentials: Credentials,
    metrics: Metrics,
    link: Link,
    /// The last publication; open streams subscribe to it.
    latest: watch::Sender<Option<Arc<str>>>,
    /// Notified when a stream has opened and needs a state.
    joined: Notify,
}

impl Link {
    /// A link without answers and UID.
    pub fn new() -> Self {
        let uid = watch::Sender::new(None);
        Self { acknowledged: Arc::default(), uid, recheck: Arc::default() }
    }
}

impl Streamer {
    /// A streamer for the node called `node` to `options.targets`.
    pub fn new(
        node: String,
        owner: Handle,
        metrics: Metrics,
        link: Link,
        options: options::Streaming,
    ) -> Self {
        let options::Streaming { targets, credentials } = options;
        let latest = watch::Sender::new(None);
        let joined = Notify::new();
        Self { shared: Arc::new(Shared { node, owner, credentials, metrics, link, latest, joined }), targets }
    }

    /// Streams until `phase` is [`Phase::End`].
    pub async fn run(self, mut phase: watch::Receiver<Phase>) {
        tokio::select! {
            () = self.keep_replicas() => {}
            () = self.shared.publish() => {}
            () = server::ended(&mut phase) => {}
        }
    }

    /// Runs one task for each replica that is found.
    async fn keep_replicas(&self) {
        let mut tasks = JoinSet::new();
        let mut replicas = HashMap::new();
        let transport = if self.shared.credentials.tls.is_some() { Transport::Tls } else { Transport::Plain };
        loop {
            let found = match timeout(DISCOVERY_TIMEOUT, targets::resolve(&self.targets, transport)).await {
                Ok(Ok(found)) => Some(found),
                Ok(Err(error)) => {
                    warn!(%error, "Some extender replicas can't be looked up; those that are known stay");
                    None
                }
                Err(_) => None,
            };
            if let Some(found) = found {
                replicas.retain(|address: &Address, task: &mut tokio::task::AbortHandle| {
                    let stays = found.contains(address);
                    if !stays {
                        info!(replica = %address, "Extender replica is gone");
                        task.abort();
                    }
                    stays
                });
                for address in found {
                    replicas.entry(address).or_insert_with_key(|address| {
                        info!(replica = %address, "Extender replica found");
                        tasks.spawn(Replica::new(Arc::clone(&self.shared), address.clone()).run())
                    });
                }
            }
            while tasks.try_join_next().is_some() {}
            let (some, none) = DISCOVERY_INTERVALS;
            sleep(if replicas.is_empty() { none } else { some }).await;
        }
    }
}

impl Shared {
    /// Publishes to all open streams: soon after a change, but no more often than the replicas allow, and at least
    /// every [`REFRESH_INTERVAL`].
    async fn publish(&self) {
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

//! The stream to the extender's replicas: the same state that the annotation has, a moment after something changed.
//!
//! One publication at a time is what all replicas take from; whoever is slow or away misses some and gets the newest.
//! The annotation stays: it is how a replica that starts knows the cluster, and what remains when no stream does.

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
use fpga_node_stream::limits::REFRESH;
use replica::Replica;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use targets::{Target, Transport};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

/// How often replicas are looked for, and how often while none is found.
const LOOK_FOR_REPLICAS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(3));
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause when the owner does not answer.
const OWNER_PAUSE: Duration = Duration::from_secs(1);

/// What streams and publisher know of each other.
#[derive(Debug, Clone)]
pub struct Link {
    /// What the replicas last said.
    pub acknowledged: Arc<Acknowledged>,
    /// The UID of the node object, once it is known.
    pub uid: watch::Sender<Option<String>>,
    /// A replica knows the node under another UID.
    pub recheck: Arc<Notify>,
}

/// Streams the state of one node.
pub struct Streamer {
    shared: Arc<Shared>,
    targets: Vec<Target>,
}

/// What all replicas' tasks share.
struct Shared {
    node: String,
    owner: Handle,
    credentials: Credentials,
    metrics: Metrics,
    link: Link,
    /// The last publication; open streams subscribe to it.
    latest: watch::Sender<Option<Arc<str>>>,
    /// A stream was opened, and wants a state.
    joined: Notify,
}

impl Link {
    /// Nothing is known yet.
    pub fn new() -> Self {
        let uid = watch::Sender::new(None);
        Self { acknowledged: Arc::default(), uid, recheck: Arc::default() }
    }
}

impl Streamer {
    /// Streams of the node called `node` to `targets`.
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

    /// Streams until `phase` says to end.
    pub async fn run(self, mut phase: watch::Receiver<Phase>) {
        tokio::select! {
            () = self.keep_replicas() => {}
            () = self.shared.publish() => {}
            () = server::ended(&mut phase) => {}
        }
    }

    /// A task for each replica that there is.
    async fn keep_replicas(&self) {
        let mut tasks = JoinSet::new();
        let mut replicas = HashMap::new();
        let transport = if self.shared.credentials.tls.is_some() { Transport::Tls } else { Transport::Plain };
        loop {
            let found = match timeout(LOOK_TIMEOUT, targets::resolve(&self.targets, transport)).await {
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
            let (some, none) = LOOK_FOR_REPLICAS;
            sleep(if replicas.is_empty() { none } else { some }).await;
        }
    }
}

impl Shared {
    /// Publishes to all open streams: at once when something changed, but no more often than the replicas bear, and now
    /// and then in any case.
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
                () = sleep_until(begin + REFRESH.max(pace)) => {}
                changed = changes.changed() => if changed.is_err() {
                    // No owner, no change; the end is near.
                    sleep(OWNER_PAUSE).await;
                }
            }
        }
    }

    /// The state now, as the next publication.
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

//! The streams to replicas of the extender and of the endpoint picker: the state of the node, sent shortly after a
//! change.
//!
//! All replicas share one publication at a time. A slow replica misses some and gets the newest. The annotation is
//! still written: a replica that starts learns the cluster from it, and it remains where no stream is open.

mod acknowledged;
pub mod options;
mod replica;
mod shared;
mod targets;

pub use shared::Link;

use crate::metrics::Metrics;
use crate::owner::Handle;
use crate::server::{self, Phase};
use fpga_node_stream::client::{Address, Credentials};
use replica::Replica;
use shared::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use targets::{Found, MAX_REPLICAS, Target, Transport};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Interval of the search for replicas while each target has some, and while one has none.
const DISCOVERY_INTERVALS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(3));
/// Maximum time for one search.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Streams the state of one node to the replicas.
pub struct Streamer {
    shared: Arc<Shared>,
    targets: Vec<(Target, Arc<Credentials>)>,
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
        let options::Streaming { targets } = options;
        let latest = watch::Sender::new(None);
        let joined = Notify::new();
        Self { shared: Arc::new(Shared { node, owner, metrics, link, latest, joined }), targets }
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
        let mut known = vec![Found::default(); self.targets.len()];
        loop {
            for ((target, credentials), known) in self.targets.iter().zip(&mut known) {
                let transport = if credentials.tls.is_some() { Transport::Tls } else { Transport::Plain };
                match timeout(DISCOVERY_TIMEOUT, target.resolve(transport)).await {
                    Ok(Ok(found)) => {
                        if found.left_out > 0 && found.left_out != known.left_out {
                            warn!(
                                %target, left_out = found.left_out,
                                "More than {MAX_REPLICAS} replicas: the others get no stream, and learn states by annotation"
                            );
                        }
                        *known = found;
                    }
                    Ok(Err(error)) => {
                        warn!(%target, %error, "Replicas can't be looked up; those that are known stay");
                    }
                    Err(_) => {}
                }
            }
            self.shared.metrics.replicas_left_out(known.iter().map(|found| found.left_out).sum());
            let found: HashMap<&Address, &Arc<Credentials>> = self
                .targets
                .iter()
                .zip(&known)
                .flat_map(|((_, credentials), known)| {
                    known.replicas.iter().map(move |address| (address, credentials))
                })
                .collect();
            replicas.retain(|address: &Address, task: &mut AbortHandle| {
                let stays = found.contains_key(address);
                if !stays {
                    info!(replica = %address, "Replica is gone");
                    task.abort();
                }
                stays
            });
            for (address, credentials) in found {
                replicas.entry(address.clone()).or_insert_with_key(|address| {
                    info!(replica = %address, "Replica found");
                    let replica =
                        Replica::new(Arc::clone(&self.shared), address.clone(), Arc::clone(credentials));
                    tasks.spawn(replica.run())
                });
            }
            while tasks.try_join_next().is_some() {}
            let (all, some) = DISCOVERY_INTERVALS;
            sleep(if known.iter().any(|found| found.replicas.is_empty()) { some } else { all }).await;
        }
    }
}

//! A stand-in for the kubelet: a node that runs its pods as local processes, and reports their true status.
//!
//! The node registers its Node, renews its Lease, and maintains the status of pods: phase, readiness, exit codes,
//! restarts, graceful deletion. There are no images, volumes, cgroups or probes: a container is its `command` with
//! `args` and `env`, and is ready when its declared ports accept connections. Each pod has its own loopback address.

mod command;
mod pod;
mod register;
mod status;

use super::network::NodeNetwork;
use anyhow::Result;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument as _, info, warn};

/// The specification of a node.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Name of the node.
    pub name: String,
    /// Labels besides the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Addresses of the node and its pods.
    pub network: NodeNetwork,
    /// Environment of all containers; a pod's own variables replace these.
    pub env: BTreeMap<String, String>,
    /// Folder for the logs of pods: `DIR/POD/CONTAINER.log`.
    pub pods_dir: PathBuf,
}

/// A running node. Dropping it without [`Node::stop`] kills its processes.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    shutdown: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// State that the node's pods share.
struct Shared {
    spec: NodeSpec,
    client: Client,
    addresses: Mutex<VecDeque<Ipv4Addr>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Node {
    /// Registers the node and starts to run its pods; `client` has the node's identity. The node becomes ready, and
    /// loses its not-ready taint, a moment later: see [`Node::wait_ready`].
    ///
    /// # Errors
    /// The API server refuses the node.
    pub async fn start(spec: NodeSpec, client: Client) -> Result<Self> {
        let addresses = Mutex::new(spec.network.pods().collect());
        let shared = Arc::new(Shared { spec, client, addresses });
        let node = register::register(&shared).await?;
        let (shutdown, stopping) = watch::channel(false);
        let span = tracing::info_span!("node", name = %shared.spec.name);
        let mut tasks = JoinSet::new();
        tasks.spawn(register::renew_lease(Arc::clone(&shared), node).instrument(span.clone()));
        tasks.spawn(run_pods(Arc::clone(&shared), stopping).instrument(span));
        Ok(Self { shared, shutdown, tasks })
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.spec.name
    }

    /// Folder with the logs of the named pod.
    #[must_use]
    pub fn pod_dir(&self, pod: &str) -> PathBuf {
        self.shared.spec.pods_dir.join(pod)
    }

    /// Waits until pods can be placed on the node.
    ///
    /// # Errors
    /// The node does not become ready in time.
    pub async fn wait_ready(&self, time: Duration) -> Result<()> {
        let nodes: Api<KubeNode> = Api::all(self.shared.client.clone());
        super::wait::until_within(&format!("the node {} to be ready", self.name()), time, async || {
            let node = nodes.get(self.name()).await?;
            let tainted = node.spec.and_then(|spec| spec.taints).is_some_and(|taints| !taints.is_empty());
            Ok((!tainted).then_some(()))
        })
        .await
    }

    /// Ends the pods' processes without telling the cluster, like a machine that is switched off.
    pub async fn stop(mut self) {
        self.shutdown.send_replace(true);
        // The lease's task runs until it is aborted; the pods' task ends when all processes have ended.
        self.tasks.join_next().await;
        self.tasks.shutdown().await;
    }
}

/// The desired state of a pod, for the pod's task.
#[derive(Debug, Clone)]
enum Desired {
    /// Run this pod, or end it if it is marked as deleted.
    Pod(Box<Pod>),
    /// The pod is gone from the API server: kill its processes at once.
    Gone,
    /// The node stops: end the processes without reporting.
    NodeStops,
}

async fn run_pods(shared: Arc<Shared>, mut stopping: watch::Receiver<bool>) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let of_this_node = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.spec.name));
    let mut events = Box::pin(watcher(pods, of_this_node));
    let mut pods = Pods { shared, known: HashMap::new(), listed: Vec::new(), tasks: JoinSet::new() };
    loop {
        tokio::select! {
            event = events.try_next() => match event {
                Ok(Some(event)) => pods.handle(event),
                Ok(None) => break,
                // The watcher restarts by itself; a pause prevents a tight loop.
                Err(error) => {
                    warn!(%error, "Watching pods failed");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            },
            // The value changes once, to true; an error means that the node was dropped.
            _ = stopping.changed() => break,
        }
    }
    for desired in pods.known.values() {
        desired.send_replace(Desired::NodeStops);
    }
    while pods.tasks.join_next().await.is_some() {}
    info!("Stopped");
}

/// The pods of a node by UID.
struct Pods {
    shared: Arc<Shared>,
    known: HashMap<String, watch::Sender<Desired>>,
    /// UIDs in the current listing.
    listed: Vec<String>,
    tasks: JoinSet<()>,
}

impl Pods {
    fn handle(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed.extend(pod.uid());
                self.apply(pod);
            }
            watcher::Event::InitDone => {
                let gone: Vec<_> =
                    self.known.keys().filter(|uid| !self.listed.contains(uid)).cloned().collect();
                gone.iter().for_each(|uid| self.remove(uid));
            }
            watcher::Event::Apply(pod) => self.apply(pod),
            watcher::Event::Delete(pod) => pod.uid().iter().for_each(|uid| self.remove(uid)),
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn apply(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        if let Some(desired) = self.known.get(&uid) {
            desired.send_replace(Desired::Pod(Box::new(pod)));
            return;
        }
        let span = tracing::info_span!("pod", name = %pod.name_any());
        let (send, desired) = watch::channel(Desired::Pod(Box::new(pod)));
        self.known.insert(uid, send);
        self.tasks.spawn(pod::run(Arc::clone(&self.shared), desired).instrument(span));
    }

    fn remove(&mut self, uid: &str) {
        if let Some(desired) = self.known.remove(uid) {
            desired.send_replace(Desired::Gone);
        }
    }
}

impl Shared {
    fn take_address(&self) -> Option<Ipv4Addr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Appends the address to the queue, so that it isn't used again soon.
    fn give_address_back(&self, address: Ipv4Addr) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).push_back(address);
    }
}

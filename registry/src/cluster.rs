//! What the registry knows of the cluster: nodes, pods with boards, Bitstreams and the labels of namespaces, watched by
//! every replica.

use crate::metrics::Metrics;
use fpga_board::reuse::published::{NodeReuse, REUSE_ANNOTATION};
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use fpga_core::units::{Millis, WallTime};
use fpga_node_stream::server::annotation_age;
use fpga_registry_api::{Bitstream, FpgaPod};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::{Store, reflector, store};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use tracing::warn;

/// The watched objects.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Metadata of the nodes.
    pub nodes: Store<PartialObjectMeta<Node>>,
    /// Pods; those without boards have a name only.
    pub pods: Store<Pod>,
    /// Bitstreams.
    pub bitstreams: Store<Bitstream>,
    /// Metadata of the namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
}

/// A node with what its collector published last.
#[derive(Debug, Clone)]
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// Its labels that describe its boards.
    pub labels: NodeLabels,
    /// The annotation with the workloads that were moved off it.
    pub moved_off: Option<String>,
    /// The state of its boards; `None` without one that can be read.
    pub state: Option<Arc<NodeState>>,
    /// Age of the state.
    pub age: Millis,
}

/// The states of nodes, each decoded once.
#[derive(Debug, Default)]
pub struct NodeStates(HashMap<String, (String, Option<Arc<NodeState>>)>);

impl KnownNode {
    /// The state, unless it is too old to be believed.
    #[must_use]
    pub fn fresh(&self) -> Option<&NodeState> {
        self.state.as_deref().filter(|state| self.age <= state.stale_after())
    }
}

impl Cluster {
    /// Begins to watch. The returned future watches until it is dropped, or a watch is broken for good.
    pub fn watch(client: Client, metrics: &Metrics) -> (Self, impl Future<Output = ()> + use<>) {
        let (nodes, node_watch) = reflect(Api::all(client.clone()), metrics, |_| {});
        let (pods, pod_watch) = reflect(Api::all(client.clone()), metrics, strip);
        let (bitstreams, bitstream_watch) = reflect(Api::all(client.clone()), metrics, |_| {});
        let (namespaces, namespace_watch) = reflect(Api::all(client), metrics, |_| {});
        let watch = async move {
            tokio::select! {
                () = node_watch => {}
                () = pod_watch => {}
                () = bitstream_watch => {}
                () = namespace_watch => {}
            }
        };
        (Self { nodes, pods, bitstreams, namespaces }, watch)
    }

    /// Waits until nodes and pods are known.
    pub async fn until_pods_are_known(&self) {
        // An error means that the watch has ended, which ends the program.
        let _ = tokio::join!(self.nodes.wait_until_ready(), self.pods.wait_until_ready());
    }

    /// Waits until Bitstreams and namespaces are known.
    pub async fn until_bitstreams_are_known(&self) {
        let _ = tokio::join!(self.bitstreams.wait_until_ready(), self.namespaces.wait_until_ready());
    }

    /// The pods with boards that have not ended.
    #[must_use]
    pub fn fpga_pods(&self) -> Vec<FpgaPod> {
        self.pods.state().iter().filter_map(|pod| FpgaPod::of(pod)).collect()
    }

    /// What the nodes publish of the gaps between uses, by name of the node.
    #[must_use]
    pub fn reuse(&self) -> BTreeMap<String, NodeReuse> {
        let nodes = self.nodes.state();
        let published = nodes.iter().filter_map(|node| {
            let text = node.metadata.annotations.as_ref()?.get(REUSE_ANNOTATION)?;
            Some((node.metadata.name.clone()?, NodeReuse::parse(text)?))
        });
        published.collect()
    }

    /// The nodes; `states` has what was decoded before.
    #[must_use]
    pub fn known_nodes(&self, states: &mut NodeStates, now: WallTime) -> Vec<KnownNode> {
        let nodes = self.nodes.state();
        let known: Vec<KnownNode> =
            nodes.iter().filter_map(|node| states.node(&node.metadata, now)).collect();
        let names: HashSet<&str> = known.iter().map(|node| node.name.as_str()).collect();
        states.0.retain(|name, _| names.contains(name.as_str()));
        known
    }
}

impl NodeStates {
    fn node(&mut self, node: &ObjectMeta, now: WallTime) -> Option<KnownNode> {
        let name = node.name.clone()?;
        let annotation = |key: &str| node.annotations.as_ref()?.get(key);
        let state = annotation(ANNOTATION).and_then(|text| {
            let entry = self.0.entry(name.clone()).or_default();
            if entry.0 != *text {
                *entry = (text.clone(), decode(text).ok().map(Arc::new));
            }
            entry.1.clone()
        });
        Some(KnownNode {
            labels: NodeLabels::of_node(|key| node.labels.as_ref()?.get(key).map(String::as_str)),
            moved_off: annotation(fpga_core::moved_off::MOVED_OFF_ANNOTATION).cloned(),
            // A state without a date may be of any age.
            age: annotation_age(node, now).unwrap_or(Millis(u64::MAX)),
            state,
            name,
        })
    }
}

/// A store of all objects of a kind, and the watch that fills it.
fn reflect<K, F>(api: Api<K>, metrics: &Metrics, strip: F) -> (Store<K>, impl Future<Output = ()> + use<K, F>)
where
    F: FnMut(&mut K) + Send + 'static,
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (reader, writer) = store();
    let errors = metrics.watch_errors.clone();
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(strip);
    let watch = async move {
        let mut events = std::pin::pin!(reflector(writer, events));
        while let Some(event) = events.next().await {
            if let Err(error) = event {
                errors.inc();
                warn!(kind = %K::kind(&K::DynamicType::default()), %error, "A watch failed, trying again");
            }
        }
    };
    (reader, watch)
}

/// Leaves of a pod what is read, and of a pod without boards its name.
fn strip(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if FpgaPod::of(pod).is_none() {
        pod.spec = None;
        pod.status = None;
        pod.metadata.labels = None;
        pod.metadata.annotations = None;
        pod.metadata.owner_references = None;
        return;
    }
    if let Some(spec) = &mut pod.spec {
        let resources = |container: &mut k8s_openapi::api::core::v1::Container| {
            let resources = container.resources.take();
            *container = k8s_openapi::api::core::v1::Container { resources, ..Default::default() };
        };
        spec.containers.iter_mut().for_each(resources);
        spec.init_containers.iter_mut().flatten().for_each(resources);
        spec.volumes = None;
        spec.affinity = None;
        spec.tolerations = None;
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
    }
}

//! What the registry knows of the cluster: nodes, pods with boards, Bitstreams and the labels of namespaces, watched by
//! every replica.

use crate::metrics::Metrics;
use fpga_board::reuse::published::{NodeReuse, REUSE_ANNOTATION};
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::{ANNOTATION, NodeState, decode};
use fpga_core::node_terms::NodeTerms;
use fpga_core::units::{Millis, WallTime};
use fpga_node_stream::server::annotation_age;
use fpga_registry_api::{Bitstream, FpgaPod, node_terms};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Affinity, Namespace, Node, NodeCondition, NodeSpec, NodeStatus, Pod};
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
    /// Nodes, with what decides whether they take pods.
    pub nodes: Store<Node>,
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
    /// Which pods it takes.
    pub terms: NodeTerms,
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
        let (nodes, node_watch) = reflect(Api::all(client.clone()), metrics, strip_node);
        let (pods, pod_watch) = reflect(Api::all(client.clone()), metrics, strip_pod);
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
        let known: Vec<KnownNode> = nodes.iter().filter_map(|node| states.node(node, now)).collect();
        let names: HashSet<&str> = known.iter().map(|node| node.name.as_str()).collect();
        states.0.retain(|name, _| names.contains(name.as_str()));
        known
    }
}

impl NodeStates {
    fn node(&mut self, object: &Node, now: WallTime) -> Option<KnownNode> {
        let node = &object.metadata;
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
            terms: node_terms(object),
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

/// Leaves of a node its metadata, cordon, taints, and the status of its condition `Ready`.
fn strip_node(node: &mut Node) {
    node.spec = node.spec.take().map(|spec| NodeSpec {
        unschedulable: spec.unschedulable,
        taints: spec.taints,
        ..NodeSpec::default()
    });
    node.status = node.status.take().map(|status| {
        let conditions = status.conditions.into_iter().flatten().filter(|it| it.type_ == "Ready");
        let conditions = conditions.map(|it| NodeCondition {
            type_: it.type_,
            status: it.status,
            ..NodeCondition::default()
        });
        NodeStatus { conditions: Some(conditions.collect()), ..NodeStatus::default() }
    });
}

/// Leaves of a pod what is read, and of a pod without boards its name.
fn strip_pod(pod: &mut Pod) {
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
        let of_nodes = spec.affinity.take().and_then(|affinity| affinity.node_affinity);
        spec.affinity = of_nodes.map(|node| Affinity { node_affinity: Some(node), ..Affinity::default() });
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_node_and_a_pod_no_more_is_kept_than_decisions_read() {
        let metadata = json!({"name": "n", "labels": {"zone": "a"}});
        let taints = json!([{"key": "fpga", "effect": "NoSchedule"}]);
        let mut node: Node = serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"unschedulable": true, "taints": taints, "podCIDR": "10.0.0.0/24", "providerID": "x"},
            "status": {
                "images": [{"names": ["large"]}],
                "conditions": [
                    {"type": "Ready", "status": "False", "message": "long"},
                    {"type": "DiskPressure", "status": "False"},
                ],
            },
        }))
        .unwrap();
        let before = node_terms(&node);
        strip_node(&mut node);
        let left = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata,
            "spec": {"unschedulable": true, "taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        });
        assert_eq!((serde_json::to_value(&node).unwrap(), node_terms(&node)), (left, before));

        let rule = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]});
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rule]}});
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": "p", "uid": "u",
                         "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
            "spec": {
                "containers": [{"name": "main", "image": "large"}],
                "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": required, "podAffinity": {}},
            },
        }))
        .unwrap();
        let before = FpgaPod::of(&pod).unwrap();
        assert!(before.terms.affinity.is_some() && before.terms.tolerations.len() == 1);
        strip_pod(&mut pod);
        let affinity = pod.spec.as_ref().unwrap().affinity.as_ref().unwrap();
        assert!(affinity.pod_affinity.is_none());
        assert_eq!(FpgaPod::of(&pod), Some(before));
    }
}

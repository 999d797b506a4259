//! The facts that the checks read. A fact that could not be gathered has the reason instead.

use super::scheduler_config::SchedulerConfig;
use fpga_core::node_state::NodeState;
use fpga_extender_api::{ConfigView, NodeView};
use std::collections::{BTreeMap, BTreeSet};

/// A fact, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq)]
pub enum Looked<T> {
    /// The fact.
    Found(T),
    /// Why the fact could not be gathered.
    Hidden(String),
}

/// All facts.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Time of the plugin's clock, seconds since the epoch.
    pub now: i64,
    /// Minor version of Kubernetes 1.x.
    pub kubernetes_minor: Looked<u32>,
    /// Where kube-scheduler's configuration was found, and the configuration.
    pub config: Looked<(String, SchedulerConfig)>,
    /// Names of the schedulers that the manifests' own kube-scheduler serves, if it runs.
    pub own_schedulers: Vec<String>,
    /// kube-scheduler's pod.
    pub scheduler_pod: Looked<SchedulerPod>,
    /// Whether the URL in the configuration answers.
    pub reach: Looked<Reach>,
    /// The extender's replicas.
    pub replicas: Looked<Vec<Replica>>,
    /// All nodes of the cluster.
    pub nodes: Looked<Vec<Node>>,
    /// Pods that ask for an FPGA and have not ended.
    pub pods: Looked<Vec<FpgaPod>>,
    /// The collectors of the manifests.
    pub collectors: Looked<Collectors>,
    /// Nodes with a ready node plugin.
    pub plugins: Looked<Vec<String>>,
    /// The DaemonSets of device managers.
    pub managers: Looked<Vec<ManagerSet>>,
    /// Our admission policies.
    pub policies: Looked<Vec<Policy>>,
    /// The lease of the manifests' own kube-scheduler; `None` if there is no such scheduler.
    pub lease: Looked<Option<Lease>>,
    /// The rights that the service accounts need.
    pub rights: Looked<Vec<Right>>,
}

/// The result of a call to the configured URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// The URL answers.
    Answers,
    /// The URL does not answer, for this reason.
    Silent(String),
}

/// kube-scheduler's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulerPod {
    /// Name of the pod.
    pub name: String,
    /// Whether the pod uses the host's network.
    pub host_network: bool,
    /// The pod's `dnsPolicy`.
    pub dns_policy: String,
    /// Command and arguments of kube-scheduler's container.
    pub command: Vec<String>,
}

/// A replica of the extender.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Name of the pod or address.
    pub name: String,
    /// Whether the EndpointSlice has the replica as ready and its `/readyz` answers.
    pub ready: bool,
    /// The configuration in force in the replica.
    pub config: Looked<ConfigView>,
    /// The nodes as the replica sees them.
    pub nodes: Looked<Vec<NodeView>>,
    /// The replica's metrics.
    pub metrics: Looked<Metrics>,
    /// The replica's version; `None` if it does not tell.
    pub version: Option<String>,
}

/// Metrics of a replica.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// For each metric, the sum of its samples.
    pub sums: BTreeMap<String, f64>,
    /// Certificates at the replica's ports.
    pub certificates: Vec<Certificate>,
    /// For each reason, the number of streams that the replica refused or ended since its start.
    pub refused_streams: BTreeMap<String, f64>,
}

/// A certificate at a port of a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate {
    /// The port, `http` or `stream`.
    pub port: String,
    /// The certificate's use: `own` for the port's own, `client_ca` for an authority of clients.
    pub which: String,
    /// End of validity, seconds since the epoch.
    pub expires: i64,
}

/// The collectors of the manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collectors {
    /// Nodes with a ready collector.
    pub ready_on: Vec<String>,
    /// Whether collectors label their nodes.
    pub labelling: Labelling,
}

/// The origin of the labels of nodes with boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labelling {
    /// The administrator labels the nodes.
    ByPeople,
    /// The collectors label their nodes (`--label-node`).
    ByCollectors,
}

/// A DaemonSet of device managers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagerSet {
    /// Name of the DaemonSet.
    pub name: String,
    /// Number of nodes that should run a pod of it.
    pub wanted: i32,
    /// Number of nodes that run a ready pod of it.
    pub ready: i32,
    /// Whether its container has a limit of memory.
    pub memory_limit: MemoryLimit,
}

/// Whether a container has a limit of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The container has a limit.
    #[default]
    Set,
    /// The container may use all memory of its node.
    Missing,
}

/// An admission policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Kind and name.
    pub name: String,
    /// Whether a binding brings the policy into force.
    pub is_bound: bool,
}

/// A lease by which kube-schedulers choose the one that leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The pod that leads; `None` if nobody has ever led, or the leader gave the lease up.
    pub holder: Option<String>,
    /// Time of the last renewal, seconds since the epoch.
    pub renewed: i64,
    /// Time after which others may take the lease, in seconds.
    pub duration_s: i64,
}

/// A node of the cluster.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Whether the node has the label of the vendor.
    pub labelled: bool,
    /// Number of containers that may ask for a board there: allocatable of the resource.
    pub advertised: u64,
    /// Keys of the taints that keep pods off.
    pub taints: Vec<String>,
    /// State in the node's annotation.
    pub state: State,
    /// Time of the collector's last write to the node, by the API server's clock, milliseconds since the epoch.
    pub written_at_ms: Option<u64>,
}

/// The state in a node's annotation.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum State {
    /// The node has no such annotation.
    #[default]
    Absent,
    /// The annotation can't be read, for this reason.
    Unreadable(String),
    /// The state.
    Known(Box<NodeState>),
}

/// A pod that asks for an FPGA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FpgaPod {
    /// Namespace and name, separated by a slash.
    pub name: String,
    /// The pod's `schedulerName`.
    pub scheduler: String,
    /// Whether the pod is not bound to a node.
    pub pending: bool,
    /// Our resources that the pod's containers ask for.
    pub resources: BTreeSet<String>,
    /// Whether the pod reaches boards by itself: it mounts the folders of device managers, or sets their addresses.
    pub by_hand: bool,
    /// Whether an ordinary init container asks for boards.
    pub at_init: bool,
    /// Whether a node selector or a required node affinity limits the pod to nodes with one of our labels.
    pub narrowed: bool,
}

/// A right that a service account needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// Name of the service account's user.
    pub who: String,
    /// The verb.
    pub verb: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Whether the API server grants the right.
    pub allowed: bool,
    /// Consequence of a missing right.
    pub needed_for: &'static str,
}

impl FpgaPod {
    /// Whether a container of the pod asks for boards.
    #[must_use]
    pub fn requests_resource(&self) -> bool {
        !self.resources.is_empty()
    }
}

impl Facts {
    /// The replicas; empty if they are unknown.
    pub fn known_replicas(&self) -> &[Replica] {
        self.replicas.found().map(Vec::as_slice).unwrap_or_default()
    }
}

impl<T> Looked<T> {
    /// The fact, if it is known.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Hidden(_) => None,
        }
    }
}

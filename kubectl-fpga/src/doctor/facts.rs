//! What the checks look at. Where something could not be found out, why is said.

use super::scheduler_config::SchedulerConfig;
use crate::answers::{ConfigView, NodeView};
use fpga_core::node_state::NodeState;
use std::collections::BTreeMap;

/// Something that was looked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Looked<T> {
    /// It was found.
    Found(T),
    /// It was not, and why.
    Hidden(String),
}

/// Everything that is known.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Seconds since the epoch, by the clock of who asks.
    pub now: i64,
    /// Minor version of Kubernetes 1.x.
    pub kubernetes_minor: Looked<u32>,
    /// kube-scheduler's configuration, and where it was found.
    pub config: Looked<(String, SchedulerConfig)>,
    /// The names of the manifests' own scheduler, if it runs.
    pub own_schedulers: Vec<String>,
    /// kube-scheduler's pod.
    pub scheduler_pod: Looked<SchedulerPod>,
    /// Whether the URL of the configuration is answered.
    pub reach: Looked<Reach>,
    /// The extender's replicas.
    pub replicas: Looked<Vec<Replica>>,
    /// The nodes, as the API server has them.
    pub nodes: Looked<Vec<Node>>,
    /// FPGA pods.
    pub pods: Looked<Vec<FpgaPod>>,
    /// The collectors of the manifests.
    pub collectors: Looked<Collectors>,
    /// Who may do what he must.
    pub rights: Looked<Vec<Right>>,
}

/// What becomes of a call to the configured URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is answered.
    Answers,
    /// It is not, and why.
    Silent(String),
}

/// kube-scheduler's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulerPod {
    /// Its name.
    pub name: String,
    /// Whether it is in the host's network.
    pub host_network: bool,
    /// How it resolves names.
    pub dns_policy: String,
    /// Its command line.
    pub command: Vec<String>,
}

/// A replica of the extender.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// Whether Kubernetes says that it is ready.
    pub ready: bool,
    /// What is in force there.
    pub config: Looked<ConfigView>,
    /// How it sees the nodes.
    pub nodes: Looked<Vec<NodeView>>,
    /// Its metrics.
    pub metrics: Looked<Metrics>,
    /// Its version; nothing if it doesn't say.
    pub version: Option<String>,
}

/// What a replica counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Per metric the sum over its labels.
    pub sums: BTreeMap<String, f64>,
    /// Certificates at its ports.
    pub certificates: Vec<Certificate>,
    /// Streams that it refused or ended since it started, by reason.
    pub refused_streams: BTreeMap<String, f64>,
}

/// A certificate at a port of a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Certificate {
    /// `http` or `stream`.
    pub port: String,
    /// `own` or `client_ca`.
    pub which: String,
    /// When it ends, in seconds since the epoch.
    pub expires: i64,
}

/// The collectors of the manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collectors {
    /// Nodes with one that is ready.
    pub ready_on: Vec<String>,
    /// Who labels the nodes.
    pub labelling: Labelling,
}

/// Who labels the nodes that have boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labelling {
    /// Whoever looks after the cluster.
    ByPeople,
    /// The collectors are told to.
    ByCollectors,
}

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it has the vendor's label.
    pub labelled: bool,
    /// Its state.
    pub state: State,
    /// When the collector wrote it, by the API server's clock, milliseconds since the epoch.
    pub written_at_ms: Option<u64>,
}

/// A node's annotation.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum State {
    /// It has none.
    #[default]
    Absent,
    /// It can't be read, and why.
    Unreadable(String),
    /// What it says.
    Known(Box<NodeState>),
}

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A pod that asks for an FPGA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FpgaPod {
    /// Namespace and name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// Whether it waits to be placed.
    pub pending: bool,
    /// Whether it requests the managed resource.
    pub requests_resource: bool,
    /// Whether kube-scheduler itself narrows its nodes by one of our labels.
    pub narrowed: bool,
}

/// A right that somebody needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// Who.
    pub who: String,
    /// May do this.
    pub verb: &'static str,
    /// To this.
    pub resource: &'static str,
    /// Whether he may.
    pub allowed: bool,
    /// Otherwise this happens.
    pub needed_for: &'static str,
}

impl<T> Looked<T> {
    /// What was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Hidden(_) => None,
        }
    }
}

//! The options for placing functions, for the age of states, and for routing requests to replicas.

use super::trace::Owner;
use fpga_core::decide::Ranking;
use fpga_core::score::Weights;
use serde::Deserialize;

/// The placement of functions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// The unit of placement.
    pub unit: Owner,
    /// Weights of the extender, `<locality>-<usage>-<reconfiguration>`.
    pub weights: String,
    /// Greatest score of the extender.
    pub max_score: u32,
    /// Whether pods that were just placed count before any measurement shows them: `on` or `off`.
    pub anti_herd: String,
    /// The quantity by which nodes are compared.
    pub ranking: Ranking,
    /// The input of kube-scheduler's other plugins.
    pub others: Others,
    /// Weight of the other plugins' score; that score is scaled to 100 like the extender's.
    pub others_weight: f64,
    /// The choice among nodes with equal sums.
    pub ties: Ties,
    /// Lifetime of a placement.
    pub lifetime: Lifetime,
    /// For `idle`: a unit without requests for this many seconds is removed, and placed again at its next request.
    pub idle_s: f64,
    /// Replicas of each unit, each on another node.
    pub replicas: u32,
    /// Mean number of replicas per unit, distributed by demand at each look at the units; 0: `replicas` for each.
    pub replica_budget: f64,
    /// Time from a placement to the first request that it can serve, in milliseconds.
    pub start_ms: f64,
    /// Minutes between two looks for units to move or replicate; 0: units stay as they are.
    pub move_minutes: f64,
    /// Most moves per look.
    pub moves: u32,
    /// Cold starts per hour that a move must save.
    pub move_gain: f64,
}

/// The input of kube-scheduler's other plugins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// The rank of the node by processor time used in the window: the paper's baseline.
    #[default]
    CpuUsage,
    /// The same rank, but only where the extender's scores are equal.
    CpuUsageInTies,
    /// The number of units on the node, like requested resources.
    Placed,
    /// No other plugins.
    Nothing,
}

/// The choice among nodes with equal sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// A random node, as kube-scheduler chooses.
    #[default]
    Random,
    /// The first node.
    First,
}

/// The lifetime of a placement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// The whole run.
    #[default]
    Forever,
    /// Until the unit has had no requests for some time.
    Idle,
    /// A request of a function.
    Request,
}

/// The age of the states that decisions see.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Freshness {
    /// Length of the sliding window in seconds.
    pub window_s: f64,
    /// Seconds between two publications of a busy node; 0: decisions see every change at once.
    pub interval_s: f64,
    /// Seconds between two publications of a node without changes.
    pub heartbeat_s: f64,
    /// Milliseconds from publication to receipt.
    pub delay_ms: f64,
}

/// The choice of the node that serves a request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// The choice among the allowed nodes.
    pub policy: Route,
    /// The allowed nodes.
    pub reach: Reach,
    /// For `tracked`: milliseconds from the end of a request on its board until the router hears of it.
    pub way_ms: f64,
    /// For `tracked`: number of endpoint pickers. Each counts its own requests at once and learns of the others' by the
    /// states of the nodes.
    pub pickers: u32,
    /// For `tracked`: what decides which picker is asked.
    pub picker_of: PickerOf,
}

/// What decides which picker is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickerOf {
    /// Each request asks a random one.
    #[default]
    Request,
    /// All requests of a function ask the same one, as with consistent hashing.
    Function,
}

/// The choice among the allowed nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// A random node, as a Kubernetes service chooses.
    #[default]
    Random,
    /// Each node in turn.
    RoundRobin,
    /// The node with the fewest busy slots and waiting requests.
    LeastBusy,
    /// A node with the bitstream in an idle slot; without one, the node where loading costs least. The router sees all
    /// slots and queues as they are.
    Loaded,
    /// As `loaded`, by what an endpoint picker knows: its own requests, and the states that the nodes publish.
    Tracked,
}

/// The nodes that are allowed to serve a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The nodes where the function is placed.
    #[default]
    Replicas,
    /// All nodes.
    Any,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            unit: Owner::default(),
            weights: Weights::default().to_string(),
            max_score: 10,
            anti_herd: "off".to_owned(),
            ranking: Ranking::PerSlot,
            others: Others::default(),
            others_weight: 1.0,
            ties: Ties::default(),
            lifetime: Lifetime::default(),
            idle_s: 600.0,
            replicas: 1,
            replica_budget: 0.0,
            start_ms: 0.0,
            move_minutes: 0.0,
            moves: 8,
            move_gain: 4.0,
        }
    }
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            policy: Route::default(),
            reach: Reach::default(),
            way_ms: 0.0,
            pickers: 1,
            picker_of: PickerOf::default(),
        }
    }
}

impl Default for Freshness {
    fn default() -> Self {
        Self { window_s: 300.0, interval_s: 0.0, heartbeat_s: 60.0, delay_ms: 0.0 }
    }
}

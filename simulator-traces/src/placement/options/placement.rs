//! Where a scenario's functions go, and which of their replicas serves a request.

use super::trace::Owner;
use fpga_core::decide::Ranking;
use fpga_core::score::Weights;
use serde::Deserialize;

/// Where functions go.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Placement {
    /// What is placed as one.
    pub unit: Owner,
    /// Weights of the extender, `<locality>-<usage>-<reconfiguration>`.
    pub weights: String,
    /// End of the extender's scale.
    pub max_score: u32,
    /// Whether pods that were just placed count before they are measured: `on` or `off`.
    pub anti_herd: String,
    /// What of a node's use is compared with that of others.
    pub ranking: Ranking,
    /// What kube-scheduler's other plugins look at.
    pub others: Others,
    /// Weight of the other plugins' score, which goes to 100 as the extender's does.
    pub others_weight: f64,
    /// How nodes with equal sums are told apart.
    pub ties: Ties,
    /// How long a placement holds.
    pub lifetime: Lifetime,
    /// With `idle`: a unit without requests for so long is removed, and placed again at its next one.
    pub idle_s: f64,
    /// Copies of each unit, each on a node of its own.
    pub replicas: u32,
    /// Replicas per unit on average, handed out by demand whenever units are looked at; 0: as many as `replicas` for each.
    pub replica_budget: f64,
    /// Time from a placement to the first request that it serves.
    pub start_ms: f64,
    /// Time between looks for units that had better be moved, or copied; 0: they stay as they are.
    pub move_minutes: f64,
    /// Most moves at each look.
    pub moves: u32,
    /// What a move must save: cold starts per hour.
    pub move_gain: f64,
}

/// What kube-scheduler's other plugins look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Others {
    /// The processor time that was used on the node in the window, by rank: the paper's baseline.
    #[default]
    CpuUsage,
    /// The processor time, only where the extender's scores are equal.
    CpuUsageInTies,
    /// How many units are placed there, as requested resources have it.
    Placed,
    /// Nothing.
    Nothing,
}

/// How nodes with equal sums are told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// At random, as kube-scheduler does.
    #[default]
    Random,
    /// The first one.
    First,
}

/// How long a placement holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// For ever.
    #[default]
    Forever,
    /// Until nothing came for a while.
    Idle,
    /// For one request.
    Request,
}

/// How old what is known of nodes is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Freshness {
    /// The sliding window.
    pub window_s: f64,
    /// Time between publications of a node that is busy; 0: decisions see everything.
    pub interval_s: f64,
    /// Time between publications of a node where nothing changes.
    pub heartbeat_s: f64,
    /// Time from publication to receipt.
    pub delay_ms: f64,
}

/// Which node serves a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// The choice among the nodes that may.
    pub policy: Route,
    /// The nodes that may.
    pub reach: Reach,
}

/// The choice among the nodes that may serve a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// At random, as a Kubernetes service does.
    #[default]
    Random,
    /// The one with the fewest busy slots and waiting requests.
    LeastBusy,
    /// One whose idle slot has the bitstream, else the one where loading costs least.
    Loaded,
}

/// The nodes that may serve a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Those where the function is placed.
    #[default]
    Replicas,
    /// All.
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

impl Default for Freshness {
    fn default() -> Self {
        Self { window_s: 300.0, interval_s: 0.0, heartbeat_s: 60.0, delay_ms: 0.0 }
    }
}

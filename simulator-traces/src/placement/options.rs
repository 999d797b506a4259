//! What a scenario of kind `placement` may say. Everything has a default: the paper's parameters (S-9, S-10) on the
//! synthetic trace, with boards and requests as this project builds them.
//!
//! Where the paper leaves a choice open, the choice is an option here.

use crate::scenario::ScenarioError;
use crate::trace::Origin;
use serde::Deserialize;
use std::path::PathBuf;

/// What is simulated.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Looked at before this is read.
    #[serde(rename = "kind")]
    _kind: serde::de::IgnoredAny,
    /// Of every random choice but those of the synthetic trace.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where requests come from.
    #[serde(default)]
    pub trace: Trace,
    /// The boards.
    #[serde(default)]
    pub cluster: Cluster,
    /// What of a request runs on a board.
    #[serde(default)]
    pub workload: Workload,
    /// Where functions go.
    #[serde(default)]
    pub placement: Placement,
    /// How old what is known of nodes is.
    #[serde(default)]
    pub freshness: Freshness,
    /// Which node serves a request of a function.
    #[serde(default)]
    pub routing: Routing,
    /// What happens in a node's slots.
    #[serde(default)]
    pub slots: Slots,
    /// What is measured.
    #[serde(default)]
    pub measure: Measure,
}

/// Where requests come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The kind of trace.
    pub source: Source,
    /// The file of an `azure-2021` trace (CSV, or zip with one CSV in it), or the folder of an `azure-2019` one.
    pub path: Option<PathBuf>,
    /// Of the synthetic trace.
    pub seed: u64,
    /// Requests of the synthetic trace in its two weeks.
    pub requests: u64,
    /// Requests that start before this day of the trace are left out.
    pub from_day: f64,
    /// Requests that start on this day or later are left out.
    pub to_day: f64,
}

/// The kinds of traces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Made up, with the statistics of the published one (S-9).
    #[default]
    Synthetic,
    /// The Azure Functions Invocation Trace 2021.
    #[serde(rename = "azure-2021")]
    Azure2021,
    /// The Azure Functions Dataset 2019: counts per minute and quantiles of durations.
    #[serde(rename = "azure-2019")]
    Azure2019,
}

/// The boards, one per node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// How many nodes; 0 if `boards` says it.
    pub nodes: u32,
    /// Slots of a board.
    pub slots: u32,
    /// Time to load a bitstream into a slot.
    pub reconfiguration_ms: f64,
    /// More time per megabyte of bitstream.
    pub reconfiguration_ms_per_mb: f64,
    /// Time from the router to a node.
    pub network_ms: f64,
    /// Other boards than the above, node by node after them.
    pub boards: Vec<Boards>,
}

/// Nodes with equal boards.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boards {
    /// How many such nodes.
    pub nodes: u32,
    /// The board's name.
    pub model: String,
    /// Slots of a board.
    pub slots: u32,
    /// Time to load a bitstream into a slot.
    pub reconfiguration_ms: f64,
    /// More time per megabyte of bitstream.
    #[serde(default)]
    pub reconfiguration_ms_per_mb: f64,
}

/// What of a request runs on a board (S-9).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// The share that uses the board, 0 to 1.
    pub p: f64,
    /// What has that share: of each function's requests, of functions, or of applications.
    pub p_of: Share,
    /// Shorter requests never use the board.
    pub m_ms: f64,
    /// The share of a request's duration that it spends on the board, 0 to 1.
    pub r: f64,
    /// How many functions share one bitstream, on average; `same-application` counts too.
    pub functions_per_bitstream: f64,
    /// What has a bitstream of its own.
    pub bitstream_of: Owner,
    /// Sizes of bitstreams, from and to; evenly spread on a logarithmic scale.
    pub bitstream_mb: [f64; 2],
}

/// What a probability is meant for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// Every request draws.
    #[default]
    Requests,
    /// Every function draws once.
    Functions,
    /// Every application draws once.
    Applications,
}

/// What bitstreams belong to, or what is placed as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The function.
    #[default]
    Function,
    /// The application, with all its functions.
    Application,
}

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
    /// Time from a placement to the first request that it serves.
    pub start_ms: f64,
    /// Time between looks for units that had better be moved; 0: they stay where they are.
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

/// What happens in a node's slots.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slots {
    /// Whether requests overlap.
    pub requests: Requests,
    /// What becomes of a bitstream when its request ends.
    pub after_use: AfterUse,
    /// Which idle slot loses its bitstream.
    pub eviction: Eviction,
    /// With `predicted`: how far ahead it looks; 0: as far as it learns to.
    pub horizon_s: f64,
    /// Who comes next when a slot gets free.
    pub queue: Queue,
}

/// Whether requests overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// They do: slots are busy for the time on the board, and who finds none waits.
    #[default]
    Concurrent,
    /// Each is over before the next is looked at, as in the paper (6.8): slots are never busy.
    Serial,
}

/// What becomes of a bitstream when its request ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterUse {
    /// It stays (S-7).
    #[default]
    Stays,
    /// It goes: every request loads it.
    Goes,
}

/// Which idle slot loses its bitstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// The one whose last use is longest ago.
    #[default]
    Lru,
    /// The one that is expected to be used last, by how its function was called so far.
    Predicted,
    /// The one that is used last: a bound, no policy.
    Clairvoyant,
    /// Any.
    Random,
}

/// Who comes next when a slot gets free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// Who waits longest.
    #[default]
    Fifo,
    /// Who waits for the bitstream in that slot, else who waits longest.
    SameBitstream,
}

/// What is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Time between looks at the nodes' windows; the paper's text has 30 s, its table 30 min.
    pub sample_s: f64,
    /// Time at the start that counts for nothing.
    pub warm_up_days: f64,
}

impl Scenario {
    /// Where its requests come from.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if a path is missing.
    pub fn origin(&self) -> Result<Origin, ScenarioError> {
        let path = || {
            let missing =
                || ScenarioError::Invalid("trace.path is missing; write where the trace is".to_owned());
            self.trace.path.clone().ok_or_else(missing)
        };
        Ok(match self.trace.source {
            Source::Synthetic => Origin::Synthetic { seed: self.trace.seed, requests: self.trace.requests },
            Source::Azure2021 => Origin::Azure2021(path()?),
            Source::Azure2019 => Origin::Azure2019 { folder: path()?, seed: self.trace.seed },
        })
    }

    /// All kinds of boards.
    #[must_use]
    pub fn all_boards(&self) -> Vec<Boards> {
        let Cluster { nodes, slots, reconfiguration_ms, reconfiguration_ms_per_mb, .. } = self.cluster;
        let model = "board".to_owned();
        let first = Boards { nodes, model, slots, reconfiguration_ms, reconfiguration_ms_per_mb };
        std::iter::once(first).chain(self.cluster.boards.iter().cloned()).collect()
    }

    /// Whether its numbers make sense.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] says which does not.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let nodes: u64 = self.all_boards().iter().map(|boards| u64::from(boards.nodes)).sum();
        let [from, to] = self.workload.bitstream_mb;
        let wrong = [
            ((1..=100_000).contains(&nodes), "cluster.nodes: write 1 to 100000"),
            (
                self.all_boards().iter().all(|boards| (1..=1024).contains(&boards.slots)),
                "slots: write 1 to 1024",
            ),
            ((0.0..=1.0).contains(&self.workload.p), "workload.p: write a share from 0 to 1"),
            ((0.0..=1.0).contains(&self.workload.r), "workload.r: write a share from 0 to 1"),
            (self.workload.m_ms >= 0.0, "workload.m_ms: write no negative time"),
            (
                from > 0.0 && to >= from && to <= 1e6,
                "workload.bitstream_mb: write two sizes, the smaller first",
            ),
            ((1..=100).contains(&self.placement.replicas), "placement.replicas: write 1 to 100"),
            (self.trace.requests <= 1_000_000_000, "trace.requests: write at most 1000000000"),
            (self.trace.from_day >= 0.0, "trace.from_day: write a day from 0 on"),
        ];
        match wrong.iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(ScenarioError::Invalid((*what).to_owned())),
            None => Ok(()),
        }
    }
}

fn one() -> u64 {
    1
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            source: Source::default(),
            path: None,
            seed: 1,
            requests: 1_980_000,
            from_day: 0.0,
            to_day: 366.0,
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            nodes: 10,
            slots: 4,
            reconfiguration_ms: 10.0,
            reconfiguration_ms_per_mb: 0.0,
            network_ms: 0.0,
            boards: Vec::new(),
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            p: 0.5,
            p_of: Share::default(),
            m_ms: 10.0,
            r: 0.75,
            functions_per_bitstream: 1.0,
            bitstream_of: Owner::default(),
            bitstream_mb: [1.0, 1.0],
        }
    }
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            unit: Owner::default(),
            weights: "1-2-2".to_owned(),
            max_score: 10,
            anti_herd: "off".to_owned(),
            others: Others::default(),
            others_weight: 1.0,
            ties: Ties::default(),
            lifetime: Lifetime::default(),
            idle_s: 600.0,
            replicas: 1,
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

impl Default for Slots {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            after_use: AfterUse::default(),
            eviction: Eviction::default(),
            horizon_s: 0.0,
            queue: Queue::default(),
        }
    }
}

impl Default for Measure {
    fn default() -> Self {
        Self { sample_s: 30.0, warm_up_days: 0.0 }
    }
}

//! The options for a scenario's boards and the behaviour of their slots (S-7).

use serde::Deserialize;

/// The boards, one per node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// Number of nodes; 0 if `boards` lists all of them.
    pub nodes: u32,
    /// Slots of each board.
    pub slots: u32,
    /// Time to load a bitstream into a slot, in milliseconds.
    pub reconfiguration_ms: f64,
    /// Additional time per megabyte of bitstream, in milliseconds.
    pub reconfiguration_ms_per_mb: f64,
    /// What loading a bitstream replaces.
    pub reconfigures: Reconfigures,
    /// Time from the router to a node, in milliseconds.
    pub network_ms: f64,
    /// Nodes with other boards, numbered after the ones above.
    pub boards: Vec<Boards>,
}

/// What loading a bitstream replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reconfigures {
    /// A slot.
    #[default]
    Slot,
    /// The whole board, which has one image and so one slot. A board that is used with another bitstream is given to a unit
    /// only where the extender finds room for its load elsewhere (B-8).
    Board,
}

/// Nodes with equal boards.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boards {
    /// Number of such nodes.
    pub nodes: u32,
    /// Name of the board.
    pub model: String,
    /// Slots of each board.
    pub slots: u32,
    /// Time to load a bitstream into a slot, in milliseconds.
    pub reconfiguration_ms: f64,
    /// Additional time per megabyte of bitstream, in milliseconds.
    #[serde(default)]
    pub reconfiguration_ms_per_mb: f64,
}

/// The behaviour of the nodes' slots.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slots {
    /// Whether requests overlap.
    pub requests: Requests,
    /// Whether a bitstream stays loaded after its request.
    pub after_use: AfterUse,
    /// The idle slot whose bitstream is evicted.
    pub eviction: Eviction,
    /// For `predicted`: the memory from which uses are predicted.
    pub remembers: Remembers,
    /// For `predicted`: how far ahead predictions look, in seconds; 0: adapted to the observed uses.
    pub horizon_s: f64,
    /// The waiting request that gets an idle slot.
    pub queue: Queue,
}

/// Whether requests overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requests {
    /// Requests occupy slots for their time on the board, and wait if no slot is idle.
    #[default]
    Concurrent,
    /// Each request ends before the next one begins, as in the paper (6.8): slots are never busy.
    Serial,
}

/// Whether a bitstream stays loaded after its request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterUse {
    /// The bitstream stays (S-7).
    #[default]
    Stays,
    /// The bitstream is removed: every request loads it.
    Goes,
}

/// The idle slot whose bitstream is evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Eviction {
    /// The slot whose last use is longest ago.
    #[default]
    Lru,
    /// The slot whose bitstream is predicted to be used last, by the past calls of its function.
    Predicted,
    /// The slot whose bitstream is in fact used last: a bound, not a policy.
    Clairvoyant,
    /// A random slot.
    Random,
}

/// The memory from which uses of bitstreams are predicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remembers {
    /// Each board remembers its own uses, as device managers do.
    #[default]
    Board,
    /// One memory of the uses on all boards, as a request router could have it.
    Cluster,
}

/// The waiting request that gets an idle slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// The longest waiting request.
    #[default]
    Fifo,
    /// The longest waiting request for the bitstream in the slot; without one, the longest waiting request.
    SameBitstream,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            nodes: 10,
            slots: 4,
            reconfiguration_ms: 10.0,
            reconfiguration_ms_per_mb: 0.0,
            reconfigures: Reconfigures::default(),
            network_ms: 0.0,
            boards: Vec::new(),
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            after_use: AfterUse::default(),
            eviction: Eviction::default(),
            remembers: Remembers::default(),
            horizon_s: 0.0,
            queue: Queue::default(),
        }
    }
}

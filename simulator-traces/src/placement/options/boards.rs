//! A scenario's boards and what happens in their slots (S-7).

use serde::Deserialize;

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
    /// With `predicted`: who remembers how bitstreams were used.
    pub remembers: Remembers,
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

/// Who remembers how bitstreams were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remembers {
    /// Each board what it saw itself, as device managers do.
    #[default]
    Board,
    /// One memory for all boards, as a request router could have it.
    Cluster,
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

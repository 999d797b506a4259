//! What the node plugin tells of itself and of its boards, through the node's collector.
//!
//! A node whose boards are wired by hand has no plugin. Readers of earlier versions skip the field.

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of boards in a report.
pub const MAX_BOARDS: usize = 256;
/// Maximum number of controllers in a report.
pub const MAX_KEPT_OFF: usize = 8;
/// Maximum length of a board's id, in bytes.
pub const MAX_BOARD_BYTES: usize = 63;
/// Maximum length of a [`waiting_pod`], in bytes: version 0.1 wrote UIDs.
pub const MAX_UID_BYTES: usize = 64;
/// Maximum length of a [`controller`], in bytes.
pub const MAX_CONTROLLER_BYTES: usize = 128;

/// The plugin of a node, as the node's state has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginState {
    /// Whether the plugin reports in time.
    #[serde(rename = "late", default, skip_serializing_if = "Heartbeat::is_in_time")]
    pub heartbeat: Heartbeat,
    /// The last report of the plugin.
    #[serde(flatten)]
    pub report: PluginReport,
}

/// Whether the node plugin reports in time. Containers don't start on a node without its plugin. Text form: `true` if it
/// is late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Heartbeat {
    /// The last report is recent.
    #[default]
    InTime,
    /// A report is overdue.
    Late,
}

/// The report of a node plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginReport {
    /// The boards that it can give to containers now, by id.
    #[serde(default)]
    pub boards: BTreeMap<String, Instances>,
    /// The [`controller`]s whose pods this node could not serve for a reason that does not pass. Their pods had better go
    /// elsewhere for a while.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "kept_off")]
    pub kept_off: BTreeSet<String>,
    /// Boards off which pods are to be moved, by id: the [`waiting_pod`] that wants to have the whole board reconfigured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wanted: BTreeMap<String, String>,
}

/// The instances of a board. Text form: used and limit in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct Instances {
    /// Number of containers that have the board.
    pub used: u32,
    /// Number of containers that may have the board.
    pub limit: u32,
}

/// The reason why a report is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    /// It has more of the named items than the maximum.
    #[error("it has too many {0}")]
    TooMany(&'static str),
    /// The named text is longer than [`MAX_BOARD_BYTES`], [`MAX_CONTROLLER_BYTES`] or [`MAX_UID_BYTES`].
    #[error("its {0} is too long")]
    TextTooLong(&'static str),
}

/// The name under which a pod's controller is kept off: a short hash of its namespace, which is the pod's, and its UID. A
/// pod's author writes the UID as they like, so that it alone could mean a controller of another tenant. A reader of nodes
/// learns neither.
#[must_use]
pub fn controller(namespace: &str, uid: &str) -> String {
    short_hash(&format!("{namespace}/{uid}"))
}

/// The name of a pod among those that wait for boards: a short hash of its UID.
#[must_use]
pub fn waiting_pod(uid: &str) -> String {
    short_hash(uid)
}

/// The first 16 hexadecimal digits of the SHA-256 of a text.
fn short_hash(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text).iter().take(8).fold(String::with_capacity(16), |mut digits, byte| {
        // Writing into a text can't fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The [`controller`] of a text in which version 0.1 wrote `NAMESPACE/UID`.
pub(crate) fn of_any_version(text: String) -> String {
    if text.contains('/') { short_hash(&text) } else { text }
}

fn kept_off<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    Ok(texts.into_iter().map(of_any_version).collect())
}

impl Heartbeat {
    // The signature is serde's.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_in_time(&self) -> bool {
        *self == Self::InTime
    }
}

impl PluginReport {
    /// Checks the numbers and lengths of the report.
    ///
    /// # Errors
    /// [`InvalidReport`] for the first bound that the report breaks.
    pub fn validate(&self) -> Result<(), InvalidReport> {
        if self.boards.len() > MAX_BOARDS {
            Err(InvalidReport::TooMany("plugin.boards"))
        } else if self.kept_off.len() > MAX_KEPT_OFF {
            Err(InvalidReport::TooMany("plugin.keptOff"))
        } else if self.boards.keys().any(|board| board.len() > MAX_BOARD_BYTES) {
            Err(InvalidReport::TextTooLong("plugin.boards"))
        } else if self.kept_off.iter().any(|controller| controller.len() > MAX_CONTROLLER_BYTES) {
            Err(InvalidReport::TextTooLong("plugin.keptOff"))
        } else if self.wanted.len() > MAX_BOARDS {
            Err(InvalidReport::TooMany("plugin.wanted"))
        } else if self
            .wanted
            .iter()
            .any(|(board, uid)| board.len() > MAX_BOARD_BYTES || uid.len() > MAX_UID_BYTES)
        {
            Err(InvalidReport::TextTooLong("plugin.wanted"))
        } else {
            Ok(())
        }
    }
}

impl Instances {
    /// Whether one more container may have the board.
    #[must_use]
    pub const fn are_left(self) -> bool {
        self.used < self.limit
    }
}

impl From<bool> for Heartbeat {
    fn from(is_late: bool) -> Self {
        if is_late { Self::Late } else { Self::InTime }
    }
}

impl From<Heartbeat> for bool {
    fn from(heartbeat: Heartbeat) -> Self {
        heartbeat == Heartbeat::Late
    }
}

impl From<(u32, u32)> for Instances {
    fn from((used, limit): (u32, u32)) -> Self {
        Self { used, limit }
    }
}

impl From<Instances> for (u32, u32) {
    fn from(Instances { used, limit }: Instances) -> Self {
        (used, limit)
    }
}

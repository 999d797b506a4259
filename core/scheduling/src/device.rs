//! The status that a device runtime reports to the collector about one board.

use crate::bitstream::{BitstreamId, Digest};
use serde::{Deserialize, Serialize};

/// Number of slots assumed for a node while none of its devices is known: that of the paper's boards (S-7).
pub const UNKNOWN_SLOTS: u32 = 4;

/// The status of one board. The runtime sends the whole status again whenever a field changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    /// Id of the board, unique on its node, for example `dm0`.
    pub id: String,
    /// Vendor as in the label `fpga-scheduling.io/fpga-vendor`, for example `intel`.
    pub vendor: String,
    /// Name of the OpenCL platform.
    #[serde(default)]
    pub platform: String,
    /// Name of the board as in the label `fpga-scheduling.io/board`.
    #[serde(default)]
    pub board: String,
    /// Shell version as in the label `fpga-scheduling.io/shell-version`.
    #[serde(default)]
    pub shell: String,
    /// Number of slots (S-7).
    pub slots: u32,
    /// The part that a reconfiguration replaces.
    #[serde(default, skip_serializing_if = "ReconfiguredPart::is_slot")]
    pub reconfigured_part: ReconfiguredPart,
    /// Bitstreams in the slots now.
    #[serde(default)]
    pub loaded: Vec<LoadedBitstream>,
    /// Number of tasks that wait for a slot.
    #[serde(default)]
    pub queued: u32,
    /// Whether the board answers.
    pub health: Health,
}

/// A bitstream in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedBitstream {
    /// Name of the bitstream, or its digest where it has no name.
    pub id: BitstreamId,
    /// Digest of the bitstream's bytes.
    pub digest: Digest,
}

/// The part of a board that a reconfiguration replaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReconfiguredPart {
    /// One slot, by partial reconfiguration.
    #[default]
    Slot,
    /// The whole board: whoever uses another bitstream loses it.
    Board,
}

/// Whether a board answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// The board answers.
    Healthy,
    /// The board does not answer, or people have taken it out of rotation. No pod is placed on it.
    Unhealthy,
}

/// Whether a board is in rotation. Text form: `true` if people have taken it out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Rotation {
    /// The board takes new work.
    #[default]
    In,
    /// People have [cordoned](crate::cordon) the board.
    Out,
}

/// The collector's answer to a [`DeviceStatus`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAnswer {
    /// Whether the board is in rotation; `None` if the collector does not know, or is of an earlier version.
    #[serde(rename = "cordoned", default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
}

impl From<bool> for Rotation {
    fn from(is_cordoned: bool) -> Self {
        if is_cordoned { Self::Out } else { Self::In }
    }
}

impl From<Rotation> for bool {
    fn from(rotation: Rotation) -> Self {
        rotation == Rotation::Out
    }
}

impl ReconfiguredPart {
    // The signature is serde's.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_slot(&self) -> bool {
        *self == Self::Slot
    }
}

impl DeviceStatus {
    /// A healthy board whose slots are empty.
    #[must_use]
    pub fn new(id: impl Into<String>, vendor: impl Into<String>, slots: u32) -> Self {
        Self {
            id: id.into(),
            vendor: vendor.into(),
            platform: String::new(),
            board: String::new(),
            shell: String::new(),
            slots,
            reconfigured_part: ReconfiguredPart::Slot,
            loaded: Vec::new(),
            queued: 0,
            health: Health::Healthy,
        }
    }
}

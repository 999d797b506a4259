//! What a device runtime tells the collector about a board: the facts that pods ask for, and what is loaded now.

use crate::bitstream::{BitstreamId, Digest};
use serde::{Deserialize, Serialize};

/// Slots that a node counts with while none of its devices is known: those of the paper's boards (S-7).
pub const UNKNOWN_SLOTS: u32 = 4;

/// One board as its runtime describes it; the whole is sent again whenever something in it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    /// Id on its node, for example `dm0`.
    pub id: String,
    /// Vendor as in the label `fpga-scheduling.io/fpga-vendor`, for example `intel`.
    pub vendor: String,
    /// Name of the OpenCL platform.
    #[serde(default)]
    pub platform: String,
    /// Board as in the label `fpga-scheduling.io/board`.
    #[serde(default)]
    pub board: String,
    /// Shell version as in the label `fpga-scheduling.io/shell-version`.
    #[serde(default)]
    pub shell: String,
    /// How many slots it has (S-7).
    pub slots: u32,
    /// What its slots hold now.
    #[serde(default)]
    pub loaded: Vec<LoadedBitstream>,
    /// Tasks that wait for a slot.
    #[serde(default)]
    pub queued: u32,
    /// Whether the board answers.
    pub health: Health,
}

/// A bitstream in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedBitstream {
    /// Name, or digest where it has no name.
    pub id: BitstreamId,
    /// Digest of its bytes.
    pub digest: Digest,
}

/// Whether a board answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It does.
    Healthy,
    /// It doesn't: no pod should be placed for it.
    Unhealthy,
}

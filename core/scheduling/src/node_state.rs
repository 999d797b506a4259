//! The node state: what a collector publishes about its node in the annotation `fpga-scheduling.io/node-state` (S-3).
//!
//! This module has the types; [`codec`] has the text forms and their bounds. A state does not carry its own age: the
//! receiver counts the age from the receipt, on a clock that it can trust.

mod buckets;
pub mod codec;
mod cordons;
mod left_out;
mod plugin;
#[cfg(test)]
mod tests;

pub use buckets::Buckets;
pub use codec::{EncodeError, Encoded, Unreadable, decode, encode, encode_whole};
pub use cordons::CordonedBoard;
pub use left_out::{IN_SLOT_LEFT_OUT, LeftOut};
pub(crate) use plugin::of_any_version;
pub use plugin::{
    Heartbeat, Instances, InvalidReport, MAX_CONTROLLER_BYTES, MAX_KEPT_OFF, PluginReport, PluginState,
    controller, waiting_pod,
};

use crate::bitstream::{BitstreamId, Digest, InvalidBitstreamId, from_hex};
use crate::device::{Health, ReconfiguredPart, UNKNOWN_SLOTS};
use crate::ternary::Ternary;
use crate::units::{Millis, WallTime};
use crate::utilization::Utilization;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Node annotation, written by the collector: the node state.
pub const ANNOTATION: &str = "fpga-scheduling.io/node-state";

/// Field manager of the collectors' writes. The API server records the time of its last write.
pub const FIELD_MANAGER: &str = "fpga-collector";

/// Number of heartbeats without news after which a state is stale.
pub const HEARTBEATS_UNTIL_STALE: u64 = 3;

/// The state of a node's boards at one moment, and their usage in the window before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Number of the collector's start: one more than the last published `boot`.
    pub boot: u64,
    /// Number of the publication in this boot. Heartbeats raise it as well.
    pub seq: u64,
    /// Maximum time between two publications.
    #[serde(rename = "heartbeatMs")]
    pub heartbeat: Millis,
    /// Time of the measurement, milliseconds since the Unix epoch on the node's clock.
    #[serde(rename = "measuredAtMs")]
    pub measured_at: WallTime,
    /// Length of the window in which usage is counted.
    #[serde(rename = "windowMs")]
    pub window: Millis,
    /// Slot time used in the window, all devices, reconfiguration included.
    #[serde(rename = "usageMs")]
    pub usage: Millis,
    /// Time spent reconfiguring in the window, all devices.
    #[serde(rename = "reconfigurationMs")]
    pub reconfiguration: Millis,
    /// The boards of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceState>,
    /// Bitstreams loaded or used in the window, most recently used first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bitstreams: Vec<RecentBitstream>,
    /// Usage and reconfiguration of the window in time slices.
    #[serde(rename = "window")]
    pub buckets: Buckets,
    /// The node plugin; `None` if the boards are wired by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginState>,
    /// The boards that are out of rotation, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cordons: BTreeMap<String, CordonedBoard>,
    /// Parts that the text form left out to fit its bound.
    #[serde(default, skip_serializing_if = "LeftOut::is_nothing")]
    pub left_out: LeftOut,
}

/// One board in a [`NodeState`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceState {
    /// Id of the board, unique on its node.
    pub id: String,
    /// Vendor as in the label `fpga-scheduling.io/fpga-vendor`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// Name of the OpenCL platform.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Name of the board as in the label `fpga-scheduling.io/board`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub board: String,
    /// Shell version as in the label `fpga-scheduling.io/shell-version`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shell: String,
    /// Number of slots (S-7).
    pub slots: u32,
    /// The part that a reconfiguration replaces.
    #[serde(default, skip_serializing_if = "ReconfiguredPart::is_slot")]
    pub reconfigured_part: ReconfiguredPart,
    /// Bitstreams in the slots, as indexes into [`NodeState::bitstreams`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<u32>,
    /// Slot time used in the window.
    #[serde(rename = "usageMs", default)]
    pub usage: Millis,
    /// Time spent reconfiguring in the window.
    #[serde(rename = "reconfigurationMs", default)]
    pub reconfiguration: Millis,
    /// Number of tasks that wait for a slot.
    #[serde(default)]
    pub queued: u32,
    /// Whether the board answers and is in rotation.
    #[serde(rename = "healthy", with = "health_as_bool")]
    pub health: Health,
}

/// A bitstream that is loaded or was used in the window. The name or the digest may be unknown, but not both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecentBitstream {
    /// Name of the accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start of the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<DigestPrefix>,
    /// Time from the last use or load to [`NodeState::measured_at`].
    #[serde(rename = "lastUsedAgoMs")]
    pub last_used_ago: Millis,
}

/// The first 16 bytes of a bitstream's digest. Text form: 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DigestPrefix([u8; 16]);

/// The version of a state. A later publication of the same node compares greater; versions of different Node UIDs must
/// not be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct StateVersion {
    /// [`NodeState::boot`].
    pub boot: u64,
    /// [`NodeState::seq`].
    pub seq: u64,
}

impl NodeState {
    /// The version of the state.
    #[must_use]
    pub fn version(&self) -> StateVersion {
        StateVersion { boot: self.boot, seq: self.seq }
    }

    /// The age at which the state becomes stale: [`HEARTBEATS_UNTIL_STALE`] heartbeats.
    #[must_use]
    pub fn stale_after(&self) -> Millis {
        Millis(self.heartbeat.0.saturating_mul(HEARTBEATS_UNTIL_STALE))
    }

    /// Number of slots of all boards; [`UNKNOWN_SLOTS`] if no board is known.
    #[must_use]
    pub fn slots(&self) -> u64 {
        match self.devices.is_empty() {
            true => UNKNOWN_SLOTS.into(),
            false => self.devices.iter().map(|device| u64::from(device.slots)).sum(),
        }
    }

    /// Whether a slot of `device` holds the bitstream. `device` must belong to this state.
    #[must_use]
    pub fn holds(&self, device: &DeviceState, id: &BitstreamId) -> Ternary {
        Ternary::any(device.loaded.iter().map(|index| self.is_at(*index, id)))
    }

    /// Whether the bitstream at `index` of [`NodeState::bitstreams`] is the one with `id`.
    #[must_use]
    pub fn is_at(&self, index: u32, id: &BitstreamId) -> Ternary {
        match self.bitstreams.get(index as usize) {
            None if index == IN_SLOT_LEFT_OUT => Ternary::Unknown,
            Some(bitstream) if bitstream.is(id) => Ternary::Yes,
            Some(bitstream) if self.may_be_called(bitstream) && matches!(id, BitstreamId::Name(_)) => {
                Ternary::Unknown
            }
            None | Some(_) => Ternary::No,
        }
    }

    /// Whether `bitstream` may have a name that was left out.
    #[must_use]
    pub fn may_be_called(&self, bitstream: &RecentBitstream) -> bool {
        bitstream.name.is_none() && self.left_out.names > 0
    }

    /// Whether `device` belongs to this OpenCL platform. `device` must belong to this state.
    #[must_use]
    pub fn is_of_platform(&self, device: &DeviceState, platform: &str) -> Ternary {
        match device.platform.is_empty() && self.left_out.platforms > 0 {
            true => Ternary::Unknown,
            false => (device.platform == platform).into(),
        }
    }

    /// Used part of the slot time that `device` had in the window. `device` must belong to this state.
    #[must_use]
    pub fn utilization(&self, device: &DeviceState) -> Utilization {
        Utilization::of(device.usage.0, self.window.0.saturating_mul(device.slots.into()))
    }

    /// Whether the node plugin can give `device` to containers now. `device` must belong to this state. Where boards
    /// are wired by hand, nothing speaks against it.
    #[must_use]
    pub fn offers(&self, device: &DeviceState) -> bool {
        self.plugin.as_ref().is_none_or(|plugin| plugin.report.boards.contains_key(&device.id))
    }

    /// Whether one more container may have `device`. `device` must belong to this state.
    #[must_use]
    pub fn has_instances_left(&self, device: &DeviceState) -> bool {
        let boards = self.plugin.as_ref().map(|plugin| &plugin.report.boards);
        boards.and_then(|boards| boards.get(&device.id)).is_none_or(|instances| instances.are_left())
    }

    /// Usage of the window that ends `age` after the measurement, provided that nothing has run since.
    #[must_use]
    pub fn usage_at(&self, age: Millis) -> Millis {
        Buckets::sum_at(&self.buckets.usage, self.buckets.bucket, self.window, age)
    }

    /// Reconfiguration time of the window that ends `age` after the measurement, provided that nothing was loaded
    /// since.
    #[must_use]
    pub fn reconfiguration_at(&self, age: Millis) -> Millis {
        Buckets::sum_at(&self.buckets.reconfiguration, self.buckets.bucket, self.window, age)
    }
}

impl RecentBitstream {
    /// Whether the bitstream has this identifier.
    #[must_use]
    pub fn is(&self, id: &BitstreamId) -> bool {
        match id {
            BitstreamId::Name(name) => self.name.as_deref() == Some(name),
            BitstreamId::Digest(digest) => self.digest == Some(digest.into()),
        }
    }
}

impl DigestPrefix {
    /// The prefix with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the prefix.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl From<&Digest> for DigestPrefix {
    fn from(digest: &Digest) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        Self(bytes)
    }
}

impl FromStr for DigestPrefix {
    type Err = InvalidBitstreamId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_hex(text).map(Self).ok_or(InvalidBitstreamId::Digest)
    }
}

impl fmt::Display for DigestPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TryFrom<String> for DigestPrefix {
    type Error = InvalidBitstreamId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DigestPrefix> for String {
    fn from(prefix: DigestPrefix) -> Self {
        prefix.to_string()
    }
}

/// The text form of [`Health`]: a boolean.
mod health_as_bool {
    use crate::device::Health;
    use serde::{Deserialize, Deserializer, Serializer};

    // The signature is serde's.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(health: &Health, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*health == Health::Healthy)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Health, D::Error> {
        Ok(if bool::deserialize(deserializer)? { Health::Healthy } else { Health::Unhealthy })
    }
}

//! The parts that the text form of a state leaves out to fit its bound. Where a left-out part would decide, a reader
//! answers "unknown" and never "no".

use super::NodeState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// Number of left-out parts by kind. Vendors, boards, shells, slots and health are never left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeftOut {
    /// Number of bitstreams that no slot holds, the longest unused ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub recent: u32,
    /// Number of times that the resolution of the window was halved.
    #[serde(skip_serializing_if = "is_zero")]
    pub resolution: u32,
    /// Number of names, of bitstreams that have a digest. A bitstream without a name may have any name then.
    #[serde(skip_serializing_if = "is_zero")]
    pub names: u32,
    /// Number of boards whose platform was left out. A board without a platform may have any platform then.
    #[serde(skip_serializing_if = "is_zero")]
    pub platforms: u32,
    /// Number of bitstreams in slots; [`IN_SLOT_LEFT_OUT`] replaces their indexes.
    #[serde(skip_serializing_if = "is_zero")]
    pub loaded: u32,
}

/// The index in [`super::DeviceState::loaded`] of a bitstream that was left out: the slot holds an unknown bitstream.
pub const IN_SLOT_LEFT_OUT: u32 = u32::MAX;

impl LeftOut {
    /// Whether nothing was left out.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a left-out part may decide whether a node meets a requirement. The other parts affect scores only.
    #[must_use]
    pub fn concerns_filter(&self) -> bool {
        self.names > 0 || self.platforms > 0 || self.loaded > 0
    }

    /// Total number of left-out parts.
    #[must_use]
    pub fn total(&self) -> u32 {
        let Self { recent, resolution, names, platforms, loaded } = *self;
        [resolution, names, platforms, loaded].into_iter().fold(recent, u32::saturating_add)
    }

    /// Reconstructs what a collector older than version 2 of the text left out. It wrote only the number of steps
    /// (`truncated`): first bitstreams and resolution, then all platforms at once, then names.
    #[must_use]
    pub(super) fn guessed(truncated: u32, state: &NodeState) -> Self {
        let none_has_a_platform = state.devices.iter().all(|device| device.platform.is_empty());
        let nameless = state.bitstreams.iter().filter(|bitstream| bitstream.name.is_none()).count();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (names, platforms) = match none_has_a_platform {
            true => (count(nameless), count(state.devices.len())),
            false => (0, 0),
        };
        Self { recent: truncated, names, platforms, ..Self::default() }
    }
}

impl AddAssign for LeftOut {
    fn add_assign(&mut self, other: Self) {
        self.recent = self.recent.saturating_add(other.recent);
        self.resolution = self.resolution.saturating_add(other.resolution);
        self.names = self.names.saturating_add(other.names);
        self.platforms = self.platforms.saturating_add(other.platforms);
        self.loaded = self.loaded.saturating_add(other.loaded);
    }
}

impl fmt::Display for LeftOut {
    /// The left-out parts and their numbers, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.recent, "recent bitstream"),
            (self.resolution, "halving of the window"),
            (self.names, "name"),
            (self.platforms, "platform"),
            (self.loaded, "loaded bitstream"),
        ];
        let mut parts = parts.into_iter().filter(|(count, _)| *count > 0).peekable();
        if parts.peek().is_none() {
            return f.write_str("nothing");
        }
        while let Some((count, what)) = parts.next() {
            let plural = if count == 1 { "" } else { "s" };
            let comma = if parts.peek().is_some() { ", " } else { "" };
            write!(f, "{count} {what}{plural}{comma}")?;
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

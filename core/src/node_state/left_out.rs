//! What the text of a state leaves out to fit its bound: a reader answers "unknown" where that would tell, never "no".

use super::NodeState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// How much was left out, by what it was. Vendors, boards, shells, slots and health are never left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeftOut {
    /// Bitstreams that no slot holds, the longest unused ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub recent: u32,
    /// How often neighbouring slices of the window were added up.
    #[serde(skip_serializing_if = "is_zero")]
    pub resolution: u32,
    /// Names of bitstreams that have a digest: a bitstream without a name may have any.
    #[serde(skip_serializing_if = "is_zero")]
    pub names: u32,
    /// Boards whose platform was left out: a board without a platform may have any.
    #[serde(skip_serializing_if = "is_zero")]
    pub platforms: u32,
    /// Bitstreams in slots: [`IN_SLOT_LEFT_OUT`] stands where they were.
    #[serde(skip_serializing_if = "is_zero")]
    pub loaded: u32,
}

/// In [`super::DeviceState::loaded`] the place of a bitstream that was left out: the slot holds something, and what that
/// is nobody says.
pub const IN_SLOT_LEFT_OUT: u32 = u32::MAX;

impl LeftOut {
    /// Whether the state is whole.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether what is left out may decide on a pod's requirements; scores only depend on the rest.
    #[must_use]
    pub fn concerns_filter(&self) -> bool {
        self.names > 0 || self.platforms > 0 || self.loaded > 0
    }

    /// The number of things that were left out.
    #[must_use]
    pub fn total(&self) -> u32 {
        let Self { recent, resolution, names, platforms, loaded } = *self;
        [resolution, names, platforms, loaded].into_iter().fold(recent, u32::saturating_add)
    }

    /// What collectors before version 2 of the text left out: they counted `truncated` steps and did not name them. After
    /// bitstreams and resolution came all platforms at once, then names.
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
    /// What was left out and how much of it, for people.
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

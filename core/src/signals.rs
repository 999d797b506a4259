//! What a decision needs of a node's state, worked out once when the state arrives: a decision asks it of thousands of
//! nodes, and reading a few numbers that lie together is what makes that cheap.
//!
//! It says nothing that the state doesn't, and means nothing without it.

use crate::bitstream::BitstreamId;
use crate::node_state::{DeviceState, DigestPrefix, NodeState};
use crate::units::Millis;
use std::hash::{DefaultHasher, Hasher as _};

/// A node's signals at any age of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signals {
    window: Millis,
    bucket: Millis,
    /// Entry `i` has the sums over the newest `i` slices.
    sums: Box<[Load]>,
    /// Per bitstream of the state, in its order, the key of its name; after them all those of their digests.
    keys: Box<[u64]>,
    boards: Boards,
}

/// Whether a name means one thing on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boards {
    /// All its boards are of one vendor, kind and shell.
    Alike,
    /// They are not, or there are none.
    Mixed,
}

/// Slot time and reconfiguration time of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Slot time used.
    pub usage: Millis,
    /// Time spent reconfiguring.
    pub reconfiguration: Millis,
}

/// A number that equal names or digests share. Others may share it too, though hardly ever: look at what it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Of a name.
    Name(u64),
    /// Of the start of a digest.
    Digest(u64),
}

impl Signals {
    /// Those of `state`.
    #[must_use]
    pub fn of(state: &NodeState) -> Self {
        let (usage, reconfiguration) = (&state.buckets.usage, &state.buckets.reconfiguration);
        let mut sum = Load::default();
        let mut sums = vec![sum];
        for index in 0..state.buckets.len() {
            sum.usage += usage.get(index).copied().unwrap_or_default();
            sum.reconfiguration += reconfiguration.get(index).copied().unwrap_or_default();
            sums.push(sum);
        }
        let names = state.bitstreams.iter().map(|bitstream| bitstream.name.as_deref().map_or(NONE, name_key));
        let digests = state.bitstreams.iter().map(|bitstream| bitstream.digest.map_or(NONE, digest_key));
        Self {
            window: state.window,
            bucket: state.buckets.bucket,
            sums: sums.into(),
            keys: names.chain(digests).collect(),
            boards: Boards::of(state),
        }
    }

    /// Whether its boards are alike.
    #[must_use]
    pub fn boards(&self) -> Boards {
        self.boards
    }

    /// What lies in the window that ends `age` after the measurement, as [`NodeState::usage_at`] has it.
    #[must_use]
    pub fn load_at(&self, age: Millis) -> Load {
        let covered = (self.window - age).0;
        let whole = covered.checked_div(self.bucket.0).unwrap_or_default();
        let whole = usize::try_from(whole).unwrap_or(usize::MAX).min(self.sums.len() - 1);
        let inside = self.sums[whole];
        let Some(beyond) = self.sums.get(whole + 1) else { return inside };
        let part = |beyond: Millis, inside: Millis| {
            let share = u128::from((beyond - inside).0) * u128::from(covered % self.bucket.0);
            inside + Millis(u64::try_from(share / u128::from(self.bucket.0)).unwrap_or(u64::MAX))
        };
        Load {
            usage: part(beyond.usage, inside.usage),
            reconfiguration: part(beyond.reconfiguration, inside.reconfiguration),
        }
    }

    /// Indexes of the state's bitstreams that may be the one with this key.
    pub fn bitstreams_with(&self, key: Key) -> impl Iterator<Item = usize> {
        let (names, digests) = self.keys.split_at(self.keys.len() / 2);
        let (keys, wanted) = match key {
            Key::Name(key) => (names, key),
            Key::Digest(key) => (digests, key),
        };
        keys.iter().enumerate().filter_map(move |(index, key)| (*key == wanted).then_some(index))
    }
}

impl Boards {
    fn of(state: &NodeState) -> Self {
        let Some(first) = state.devices.first() else { return Self::Mixed };
        let like_first = |device: &DeviceState| {
            (&device.vendor, &device.board, &device.shell) == (&first.vendor, &first.board, &first.shell)
        };
        if state.devices.iter().all(like_first) { Self::Alike } else { Self::Mixed }
    }
}

impl Key {
    /// That of `id`.
    #[must_use]
    pub fn of(id: &BitstreamId) -> Self {
        match id {
            BitstreamId::Name(name) => Self::Name(name_key(name)),
            BitstreamId::Digest(digest) => Self::Digest(digest_key(digest.into())),
        }
    }
}

/// In the place of a key where there is nothing to have one.
const NONE: u64 = 0;

fn name_key(name: &str) -> u64 {
    // Both sides are of one process, so it need not be the same in the next version of the standard library.
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn digest_key(digest: DigestPrefix) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{mk_bitstream, mk_state};
    use crate::node_state::RecentBitstream;
    use proptest::prelude::*;

    #[test]
    fn bitstreams_are_found_by_name_and_by_digest() {
        let mut state = mk_state();
        let digest = |byte| Some(DigestPrefix::from_bytes([byte; 16]));
        state.bitstreams = vec![
            mk_bitstream("sobel", 0),
            RecentBitstream { digest: digest(1), ..mk_bitstream("mm", 0) },
            RecentBitstream { digest: digest(2), ..mk_bitstream("sobel", 0) },
        ];
        let signals = Signals::of(&state);
        let with = |text: &str| signals.bitstreams_with(Key::of(&text.parse().unwrap())).collect::<Vec<_>>();
        assert_eq!(with("sobel"), [0, 2]);
        assert_eq!(with(&format!("sha256:{}", "01".repeat(32))), [1]);
        assert_eq!(with("aes"), [0; 0]);
    }

    proptest! {
        #[test]
        fn they_fade_as_the_state_does(
            usage in prop::collection::vec(0_u64..100_000, 0..40),
            reconfiguration in prop::collection::vec(0_u64..100_000, 0..40),
            bucket in 1_u64..20_000, window in 1_u64..400_000, age in 0_u64..500_000,
        ) {
            let mut state = mk_state();
            (state.window, state.buckets.bucket) = (Millis(window), Millis(bucket));
            state.buckets.usage = usage.into_iter().map(Millis).collect();
            state.buckets.reconfiguration = reconfiguration.into_iter().map(Millis).collect();
            let load = Signals::of(&state).load_at(Millis(age));
            prop_assert_eq!(load.usage, state.usage_at(Millis(age)));
            prop_assert_eq!(load.reconfiguration, state.reconfiguration_at(Millis(age)));
        }
    }
}

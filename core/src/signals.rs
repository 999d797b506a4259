//! What a decision needs of a node's state, worked out once when the state arrives: a decision asks it of thousands of
//! nodes, and reading a few numbers that lie together is what makes that cheap.
//!
//! It says nothing that the state doesn't, and means nothing without it.

use crate::bitstream::BitstreamId;
use crate::boards_now::BoardsNow;
use crate::device::Health;
use crate::node_state::{DeviceState, DigestPrefix, NodeState};
use crate::requirement::Requirement;
use crate::units::Millis;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A node's signals at any age of its state. In the order in which a decision reads them, what it always reads first:
/// it waits for memory longer than for anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Signals {
    stale_after: Millis,
    window: Millis,
    bucket: Millis,
    /// One bit for every key in `bitstreams`: most that is looked for is not there, and this alone says so.
    marks: u64,
    fingerprint: u64,
    boards_now: BoardsNow,
    /// The last of `sums` once more: as long as the state is young no others are read.
    last_sums: [Load; LAST_SUMS],
    /// Entry `i` has the sums over the newest `i` slices.
    sums: Box<[Load]>,
    /// Of the first board.
    kind: BoardKeys,
    boards: Boards,
    /// Of the bitstreams of the state first the keys of all names, then those of all digests, then the age of the state, in
    /// milliseconds, from which each no longer counts as there.
    bitstreams: Box<[u64]>,
}

/// How many of the sums lie with what is always read.
const LAST_SUMS: usize = 3;

/// A board's kind, as numbers that are compared faster than texts; see [`Key`] for what that may mistake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BoardKeys {
    vendor: u64,
    board: u64,
    shell: u64,
    platform: u64,
}

/// The kind of board that a pod asks for, ready to be looked for on many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedKind {
    vendor: Option<u64>,
    board: Option<u64>,
    shell: Option<u64>,
    platform: Option<u64>,
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

/// A number that stands for a name or digest. That two share one happens once in 2^64 pairs; a node that wanted to pass
/// for having a bitstream could simply say so.
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
        let window = state.window;
        let is_loaded = |index: usize| {
            let healthy = state.devices.iter().filter(|device| device.health == Health::Healthy);
            healthy.flat_map(|device| &device.loaded).any(|loaded| *loaded as usize == index)
        };
        let gone_at = state.bitstreams.iter().enumerate().map(|(index, bitstream)| {
            if is_loaded(index) {
                u64::MAX
            } else {
                window.0.checked_sub(bitstream.last_used_ago.0).map_or(0, |left| left.saturating_add(1))
            }
        });
        let names = state.bitstreams.iter().map(|bitstream| bitstream.name.as_deref().map_or(NONE, name_key));
        let digests = state.bitstreams.iter().map(|bitstream| bitstream.digest.map_or(NONE, digest_key));
        let bitstreams = names.chain(digests).chain(gone_at).collect();
        let bitstreams: Box<[u64]> = bitstreams;
        let keys = &bitstreams[..bitstreams.len() / 3 * 2];
        let marks = keys.iter().fold(0, |marks, key| marks | mark(*key));
        let mut hasher = DefaultHasher::new();
        (window, state.buckets.bucket, &bitstreams).hash(&mut hasher);
        for sum in &sums {
            (sum.usage, sum.reconfiguration).hash(&mut hasher);
        }
        let first_of_last = sums.len().saturating_sub(LAST_SUMS);
        let mut last_sums = [Load::default(); LAST_SUMS];
        for (last, sum) in last_sums.iter_mut().zip(&sums[first_of_last..]) {
            *last = *sum;
        }
        Self {
            stale_after: state.stale_after(),
            window,
            bucket: state.buckets.bucket,
            marks,
            fingerprint: hasher.finish(),
            boards_now: BoardsNow::of(&state.devices),
            last_sums,
            sums: sums.into(),
            kind: state.devices.first().map(BoardKeys::of).unwrap_or_default(),
            boards: Boards::of(state),
            bitstreams,
        }
    }

    /// The age from which the state is stale, as [`NodeState::stale_after`] has it.
    #[must_use]
    pub fn stale_after(&self) -> Millis {
        self.stale_after
    }

    /// Whether its boards are alike and of this kind.
    #[must_use]
    pub fn all_are(&self, asked: &AskedKind) -> bool {
        let agrees = |asked: Option<u64>, is: u64| asked.is_none_or(|asked| asked == is);
        self.boards == Boards::Alike
            && agrees(asked.vendor, self.kind.vendor)
            && agrees(asked.board, self.kind.board)
            && agrees(asked.shell, self.kind.shell)
            && agrees(asked.platform, self.kind.platform)
    }

    /// Whether its boards are alike.
    #[must_use]
    pub fn boards(&self) -> Boards {
        self.boards
    }

    /// Differs where use or bitstreams do.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// What all its boards have at the moment.
    #[must_use]
    pub fn boards_now(&self) -> BoardsNow {
        self.boards_now
    }

    /// What lies in the window that ends `age` after the measurement, as [`NodeState::usage_at`] has it.
    #[must_use]
    pub fn load_at(&self, age: Millis) -> Load {
        let covered = (self.window - age).0;
        let whole = covered.checked_div(self.bucket.0).unwrap_or_default();
        let whole = usize::try_from(whole).unwrap_or(usize::MAX).min(self.sums.len() - 1);
        let inside = self.sum(whole).unwrap_or_default();
        let Some(beyond) = self.sum(whole + 1) else { return inside };
        let part = |beyond: Millis, inside: Millis| {
            let (slice, covered) = ((beyond - inside).0, covered % self.bucket.0);
            // Slices of a real board fit; what doesn't takes the long way.
            let share = match slice.checked_mul(covered) {
                Some(product) => product / self.bucket.0,
                None => {
                    let share = u128::from(slice) * u128::from(covered) / u128::from(self.bucket.0);
                    u64::try_from(share).unwrap_or(u64::MAX)
                }
            };
            inside + Millis(share)
        };
        Load {
            usage: part(beyond.usage, inside.usage),
            reconfiguration: part(beyond.reconfiguration, inside.reconfiguration),
        }
    }

    /// The sums over so many of the newest slices, if there are so many.
    fn sum(&self, slices: usize) -> Option<Load> {
        let first_of_last = self.sums.len().saturating_sub(LAST_SUMS);
        match slices.checked_sub(first_of_last) {
            Some(_) if slices >= self.sums.len() => None,
            Some(last) => self.last_sums.get(last).copied(),
            None => self.sums.get(slices).copied(),
        }
    }

    /// Whether the bitstream is in a slot of a board that answers, or was used in the window that ends `age` after the
    /// measurement. Of which board a name speaks is not asked here.
    #[must_use]
    pub fn has(&self, key: Key, age: Millis) -> bool {
        if !self.may_have(key) {
            return false;
        }
        let gone_at = &self.bitstreams[self.bitstreams.len() / 3 * 2..];
        self.bitstreams_with(key).any(|index| gone_at.get(index).is_some_and(|gone_at| age.0 < *gone_at))
    }

    /// No if the state speaks of no such bitstream; yes may be wrong.
    #[must_use]
    pub fn may_have(&self, key: Key) -> bool {
        let (Key::Name(key) | Key::Digest(key)) = key;
        self.marks & mark(key) != 0
    }

    /// Indexes of the state's bitstreams that have this key, there or not.
    pub fn bitstreams_with(&self, key: Key) -> impl Iterator<Item = usize> {
        let count = self.bitstreams.len() / 3;
        let (keys, wanted) = match key {
            Key::Name(key) => (&self.bitstreams[..count], key),
            Key::Digest(key) => (&self.bitstreams[count..2 * count], key),
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

impl BoardKeys {
    fn of(device: &DeviceState) -> Self {
        Self {
            vendor: name_key(&device.vendor),
            board: name_key(&device.board),
            shell: name_key(&device.shell),
            platform: name_key(&device.platform),
        }
    }
}

impl AskedKind {
    /// That of `asked`.
    #[must_use]
    pub fn of(asked: &Requirement) -> Self {
        let key = |text: &Option<String>| text.as_deref().map(name_key);
        Self {
            vendor: key(&asked.vendor),
            board: key(&asked.board),
            shell: key(&asked.shell),
            platform: key(&asked.platform),
        }
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

/// The bit that stands for a key.
fn mark(key: u64) -> u64 {
    1 << (key % 64)
}

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
    use crate::fixtures::{mk_bitstream, mk_device, mk_state};
    use crate::matching::is_kind;
    use crate::node_state::RecentBitstream;
    use proptest::prelude::*;

    #[test]
    fn bitstreams_are_found_by_name_and_by_digest() {
        let mut state = mk_state();
        let digest = |byte| Some(DigestPrefix::from_bytes([byte; 16]));
        state.bitstreams = vec![
            mk_bitstream("sobel", 0),
            RecentBitstream { digest: digest(1), ..mk_bitstream("mm", 9_000) },
        ];
        let signals = Signals::of(&state);
        let has = |text: &str, age| signals.has(Key::of(&text.parse().unwrap()), Millis(age));
        let digest = format!("sha256:{}", "01".repeat(32));
        assert!(has("sobel", 0) && has("mm", 0) && has(&digest, 0));
        assert!(!has("aes", 0) && !has(&format!("sha256:{}", "02".repeat(32)), 0));
        assert!(has("sobel", 300_000) && !has("sobel", 300_001));
        assert!(has("mm", 291_000) && !has("mm", 291_001) && !has(&digest, 291_001));
    }

    #[test]
    fn what_was_last_used_before_the_window_is_there_only_if_it_is_loaded() {
        let mut state = mk_state();
        state.devices = vec![mk_device("intel", "a10", "1")];
        state.bitstreams = vec![mk_bitstream("old", 300_001), mk_bitstream("kept", 300_001)];
        state.devices[0].loaded = vec![1];
        let signals = Signals::of(&state);
        let has = |text: &str, age| signals.has(Key::of(&text.parse().unwrap()), Millis(age));
        assert!(!has("old", 0) && has("kept", u64::MAX - 1));
    }

    #[test]
    fn a_node_is_of_a_kind_as_the_texts_of_its_boards_are() {
        let texts = ["", "intel", "a10"];
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let all = || texts.iter().flat_map(|a| texts.iter().map(move |b| (*a, *b)));
        for ((vendor, board), (shell, platform)) in all().flat_map(|a| all().map(move |b| (a, b))) {
            let asked = Requirement {
                vendor: given(vendor),
                board: given(board),
                shell: given(shell),
                platform: given(platform),
                ..Requirement::default()
            };
            for second in ["a10", "s10"] {
                let mut state = mk_state();
                state.devices = vec![mk_device("intel", "a10", ""), mk_device("intel", second, "")];
                state.devices[0].platform = "intel".to_owned();
                let signals = Signals::of(&state);
                let is = signals.boards() == Boards::Alike && is_kind(&asked, &state.devices[0]);
                assert_eq!(signals.all_are(&AskedKind::of(&asked)), is, "{asked:?}");
            }
        }
        assert!(!Signals::of(&mk_state()).all_are(&AskedKind::of(&Requirement::default())), "no board");
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

//! The values that decisions read from a node's state, computed once when the state arrives. A decision reads
//! thousands of nodes, so these values are few, and lie together in memory.
//!
//! Signals are a cache: they follow from the state and add nothing to it.

mod keys;
mod kinds;
mod load;
mod shape;
#[cfg(test)]
mod tests;

pub(crate) use keys::Key;
pub use kinds::AskedKind;
pub use load::WindowLoad;
pub(crate) use shape::Shape;

use crate::boards_now::BoardsNow;
use crate::device::Health;
use crate::node_state::{DeviceState, NodeState};
use crate::steps;
use crate::units::Millis;
use keys::{KeySet, NONE, digest_key, name_key};
use kinds::{BoardKeys, Kind, part};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// A node's signals at any age of its state. A decision spends most of its time waiting for memory. So the fields of
/// thousands of nodes lie together, those that the filter reads come first, and clones share what is read rarely.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Signals {
    stale_after: Millis,
    keys: KeySet,
    shape: Shape,
    /// Number of slots of all boards.
    slots: u32,
    /// Number of time slices.
    slices: u32,
    window: Millis,
    bucket: Millis,
    /// The last sums of [`Rest::sums`]. While the state is young no other sums are read.
    last_sums: [WindowLoad; LAST_SUMS],
    boards_now: BoardsNow,
    /// Hash of usage and bitstreams.
    fingerprint: u64,
    /// Kind of the first board.
    kind: BoardKeys,
    /// For the bitstreams of the state: the keys of all names, then the keys of all digests, then for each bitstream
    /// the age of the state, in milliseconds, at which the bitstream no longer counts as present.
    bitstreams: Arc<[u64]>,
    rest: Arc<Rest>,
}

/// The signals that few decisions read.
#[derive(Debug, PartialEq, Eq)]
struct Rest {
    /// Entry `i` is the sum over the newest `i` slices.
    sums: Box<[WindowLoad]>,
    /// Kinds of the boards that answer.
    kinds: Box<[Kind]>,
    /// Load of the whole node in the window, at the time of the measurement.
    measured: WindowLoad,
}

/// Number of entries in `last_sums`.
const LAST_SUMS: usize = 3;

/// How much the boards of a node differ, that is, whether a name identifies one bitstream on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoardMix {
    /// All boards answer and agree in vendor, board, shell and platform.
    Uniform,
    /// All boards agree in vendor, board and shell.
    Alike,
    /// The boards differ in vendor, board or shell.
    Mixed,
    /// No board is known.
    None,
}

/// The load of the answering boards of one kind in a window, and their slots and queue now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoardsLoad {
    /// Sum of the boards' loads.
    pub load: WindowLoad,
    /// Number of slots of the boards.
    pub slots: u32,
    /// Empty slots and waiting tasks of the boards.
    pub now: BoardsNow,
}

impl Signals {
    /// The signals of `state`.
    #[must_use]
    pub fn of(state: &NodeState) -> Self {
        let (usage, reconfiguration) = (&state.buckets.usage, &state.buckets.reconfiguration);
        let mut sum = WindowLoad::default();
        let mut sums = vec![sum];
        for index in 0..state.buckets.len() {
            sum.usage += usage.get(index).copied().unwrap_or_default();
            sum.reconfiguration += reconfiguration.get(index).copied().unwrap_or_default();
            sums.push(sum);
        }
        let window = state.window;
        let names = state.bitstreams.iter().map(|bitstream| bitstream.name.as_deref().map_or(NONE, name_key));
        let digests = state.bitstreams.iter().map(|bitstream| bitstream.digest.map_or(NONE, digest_key));
        let mut bitstreams: Vec<u64> = names.chain(digests).collect();
        let in_any_slot_or_recent = bitstreams.iter().copied().collect();
        let kinds = Kind::all_of(state, &bitstreams);
        bitstreams.extend(expiry_ages(state));
        let mut hasher = DefaultHasher::new();
        (window, state.buckets.bucket, &bitstreams).hash(&mut hasher);
        for kind in &kinds {
            (kind.keys, kind.slots, kind.measured).hash(&mut hasher);
        }
        sums.hash(&mut hasher);
        let first_of_last = sums.len().saturating_sub(LAST_SUMS);
        let mut last_sums = [WindowLoad::default(); LAST_SUMS];
        for (last, sum) in last_sums.iter_mut().zip(&sums[first_of_last..]) {
            *last = *sum;
        }
        Self {
            stale_after: state.stale_after(),
            keys: in_any_slot_or_recent,
            shape: Shape::of(state, BoardMix::of(state, &kinds)),
            slots: u32::try_from(state.slots()).unwrap_or(u32::MAX),
            slices: u32::try_from(state.buckets.len()).unwrap_or(u32::MAX),
            window,
            bucket: state.buckets.bucket,
            last_sums,
            boards_now: BoardsNow::of(&state.devices),
            fingerprint: hasher.finish(),
            kind: state.devices.first().map(|device| BoardKeys::of(device, state)).unwrap_or_default(),
            bitstreams: bitstreams.into(),
            rest: Arc::new(Rest {
                sums: sums.into(),
                kinds,
                measured: WindowLoad { usage: state.usage, reconfiguration: state.reconfiguration },
            }),
        }
    }

    /// The age at which the state becomes stale: [`NodeState::stale_after`].
    #[must_use]
    pub(crate) fn stale_after(&self) -> Millis {
        self.stale_after
    }

    /// Whether all boards of the node, including those that do not answer, are alike and of the kind `asked`.
    #[must_use]
    pub(crate) fn all_are(&self, asked: &AskedKind) -> bool {
        match self.board_mix() {
            BoardMix::Uniform => self.kind.are(asked),
            BoardMix::Alike => {
                self.kind.are(asked) && self.rest.kinds.iter().all(|kind| kind.keys.are(asked))
            }
            BoardMix::Mixed | BoardMix::None => false,
        }
    }

    /// How much the boards of the node differ.
    #[must_use]
    pub(crate) fn board_mix(&self) -> BoardMix {
        self.shape.board_mix()
    }

    /// The load of the answering boards of the kind `asked` in the window that ends `age` after the measurement. If
    /// the node has several kinds, each fades like the whole node, since time slices are published for the whole node
    /// only.
    ///
    /// A node without such a board counts as having one slot that was used all the time.
    #[must_use]
    #[inline]
    pub(crate) fn load_on(&self, asked: &AskedKind, age: Millis) -> BoardsLoad {
        let whole = self.load_at(age);
        if self.board_mix() == BoardMix::None || self.board_mix() == BoardMix::Uniform && self.kind.are(asked)
        {
            return BoardsLoad { load: whole, slots: self.slots, now: self.boards_now };
        }
        self.load_on_some(asked, whole)
    }

    /// As [`Self::load_on`], where the boards may differ; `whole` is the load of the whole node. A function of its own, so
    /// that the usual case becomes part of a decision's loop.
    #[inline(never)]
    fn load_on_some(&self, asked: &AskedKind, whole: WindowLoad) -> BoardsLoad {
        let mut boards = BoardsLoad { load: WindowLoad::default(), slots: 0, now: BoardsNow::default() };
        for kind in self.rest.kinds.iter().filter(|kind| kind.keys.are(asked)) {
            boards.load += kind.measured;
            boards.slots = boards.slots.saturating_add(kind.slots);
            boards.now += kind.now;
        }
        if boards.slots == 0 {
            boards.load = WindowLoad { usage: self.window, reconfiguration: self.window };
            return boards;
        }
        let measured = &self.rest.measured;
        let fade = |of_boards: Millis, measured: Millis, now: Millis| match measured {
            // The measured total is 0 but the slices are not: divide by slots.
            Millis::ZERO => part(now, boards.slots.into(), self.slots.into()),
            measured => part(now, of_boards.0, measured.0),
        };
        boards.load = WindowLoad {
            usage: fade(boards.load.usage, measured.usage, whole.usage),
            reconfiguration: fade(
                boards.load.reconfiguration,
                measured.reconfiguration,
                whole.reconfiguration,
            ),
        };
        boards
    }

    /// The usage, in the window that ends `age` after the measurement, of the boards that a pod with the kind `asked`
    /// runs on: the boards of that kind, or all boards if there is none.
    #[must_use]
    pub(crate) fn usage_under(&self, asked: &AskedKind, age: Millis) -> Millis {
        if self.board_mix() == BoardMix::Uniform || !self.suits(asked) {
            return self.load_at(age).usage;
        }
        self.load_on(asked, age).load.usage
    }

    /// The kinds of boards that a pod with the kind `asked` runs on: the number of each among [`Self::kinds`], and its
    /// slots. A pod that was placed here although no board is of its kind may run on any board.
    pub(crate) fn kinds_under(&self, asked: &AskedKind) -> impl Iterator<Item = (usize, u32)> {
        let asked = if self.suits(asked) { *asked } else { AskedKind::ANY };
        let kinds = self.rest.kinds.iter().enumerate();
        kinds.filter(move |(_, kind)| kind.keys.are(&asked)).map(|(number, kind)| (number, kind.slots))
    }

    /// Number of kinds of boards that answer.
    #[must_use]
    pub(crate) fn kinds(&self) -> usize {
        self.rest.kinds.len()
    }

    /// Whether a board that answers is of the kind `asked`.
    #[must_use]
    pub(crate) fn suits(&self, asked: &AskedKind) -> bool {
        self.rest.kinds.iter().any(|kind| kind.keys.are(asked))
    }

    /// Whether an answering board of the kind `asked` has the bitstream in a slot.
    #[must_use]
    pub(crate) fn has_loaded(&self, key: Key, asked: &AskedKind) -> bool {
        self.may_have(key) && self.rest.kinds.iter().any(|kind| kind.keys.are(asked) && kind.has_loaded(key))
    }

    /// A hash that differs if usage, slots by kind or bitstreams differ.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The load of the whole node in the window that ends `age` after the measurement, as [`NodeState::usage_at`]
    /// computes it.
    #[must_use]
    pub fn load_at(&self, age: Millis) -> WindowLoad {
        let covered = (self.window - age).0;
        let whole = covered.checked_div(self.bucket.0).unwrap_or_default();
        let whole = usize::try_from(whole).unwrap_or(usize::MAX).min(self.slices as usize);
        let inside = self.sum(whole).unwrap_or_default();
        let Some(beyond) = self.sum(whole + 1) else { return inside };
        let part = |beyond: Millis, inside: Millis| {
            let (slice, covered) = ((beyond - inside).0, covered % self.bucket.0);
            // The product of a real board's slice fits in 64 bits; only other amounts need 128.
            let share = match slice.checked_mul(covered) {
                Some(product) => product / self.bucket.0,
                None => {
                    let share = u128::from(slice) * u128::from(covered) / u128::from(self.bucket.0);
                    u64::try_from(share).unwrap_or(u64::MAX)
                }
            };
            inside + Millis(share)
        };
        WindowLoad {
            usage: part(beyond.usage, inside.usage),
            reconfiguration: part(beyond.reconfiguration, inside.reconfiguration),
        }
    }

    /// The sum over the newest `slices` slices; `None` if there are fewer.
    fn sum(&self, slices: usize) -> Option<WindowLoad> {
        let sums = self.slices as usize + 1;
        match slices.checked_sub(sums.saturating_sub(LAST_SUMS)) {
            Some(_) if slices >= sums => None,
            Some(last) => self.last_sums.get(last).copied(),
            None => self.rest.sums.get(slices).copied(),
        }
    }

    /// Whether the bitstream is in a slot of a board that answers, or was used in the window that ends `age` after the
    /// measurement. The kind of board is not checked, so a name may be that of another bitstream.
    #[must_use]
    pub(crate) fn has(&self, key: Key, age: Millis) -> bool {
        self.may_have(key) && self.bitstreams_with(key).any(|index| self.is_present(index, age))
    }

    /// As [`Self::has`], for a name beside which the state has no digest.
    #[must_use]
    pub(crate) fn has_without_digest(&self, name: Key, age: Millis) -> bool {
        let digests = &self.bitstreams[self.bitstreams.len() / 3..];
        let has_no_digest = |index: &usize| digests.get(*index) == Some(&NONE);
        let mut unidentified = self.bitstreams_with(name).filter(has_no_digest);
        self.may_have(name) && unidentified.any(|index| self.is_present(index, age))
    }

    /// Whether the bitstream with this index is in a slot or was used in the window that ends `age` after the
    /// measurement.
    fn is_present(&self, index: usize, age: Millis) -> bool {
        let expires_at = &self.bitstreams[self.bitstreams.len() / 3 * 2..];
        expires_at.get(index).is_some_and(|expires_at| age.0 < *expires_at)
    }

    /// The shape of the node.
    #[must_use]
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether a board has as many containers as it may have.
    #[must_use]
    pub fn has_full_board(&self) -> bool {
        self.shape.flags().has_full_board
    }

    /// False if the state has none of these bitstreams. True may be a false positive.
    #[must_use]
    pub(crate) fn may_have_any(&self, keys: &[Key]) -> bool {
        keys.iter().any(|key| self.may_have(*key))
    }

    /// False if the state has no such bitstream. True may be a false positive.
    #[must_use]
    pub(crate) fn may_have(&self, key: Key) -> bool {
        self.keys.may_have(key)
    }

    /// Indexes of the state's bitstreams with this key, whether present at some age or not.
    pub(crate) fn bitstreams_with(&self, key: Key) -> impl Iterator<Item = usize> {
        let count = self.bitstreams.len() / 3;
        let (keys, wanted) = match key {
            Key::Name(key) => (&self.bitstreams[..count], key),
            Key::Digest(key) => (&self.bitstreams[count..2 * count], key),
        };
        keys.iter().enumerate().filter_map(move |(index, key)| (*key == wanted).then_some(index))
    }
}

impl BoardMix {
    fn of(state: &NodeState, kinds: &[Kind]) -> Self {
        let Some(first) = state.devices.first() else { return Self::None };
        let like_first = |device: &DeviceState| {
            (&device.vendor, &device.board, &device.shell) == (&first.vendor, &first.board, &first.shell)
        };
        let all_answer = state.devices.iter().all(|device| device.health == Health::Healthy);
        match state.devices.iter().all(like_first) {
            true if all_answer && kinds.len() == 1 => Self::Uniform,
            true => Self::Alike,
            false => Self::Mixed,
        }
    }
}

/// For each bitstream the age of the state, in milliseconds, at which the bitstream no longer counts as present. A
/// bitstream in a slot of a board that answers never expires.
fn expiry_ages(state: &NodeState) -> impl Iterator<Item = u64> {
    let mut is_loaded = vec![false; state.bitstreams.len()];
    let healthy = state.devices.iter().filter(|device| device.health == Health::Healthy);
    for index in healthy.flat_map(|device| &device.loaded) {
        steps::count(1);
        if let Some(is_loaded) = is_loaded.get_mut(*index as usize) {
            *is_loaded = true;
        }
    }
    is_loaded.into_iter().zip(&state.bitstreams).map(|(is_loaded, bitstream)| match is_loaded {
        true => u64::MAX,
        false => {
            state.window.0.checked_sub(bitstream.last_used_ago.0).map_or(0, |left| left.saturating_add(1))
        }
    })
}

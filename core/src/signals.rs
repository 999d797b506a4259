//! What a decision needs of a node's state, worked out once when the state arrives: a decision asks it of thousands of
//! nodes, and reading a few numbers that lie together is what makes that cheap.
//!
//! It says nothing that the state doesn't, and means nothing without it.

mod keys;
mod kinds;
mod load;
#[cfg(test)]
mod tests;

pub use keys::Key;
pub use kinds::AskedKind;
pub use load::Load;

use crate::boards_now::BoardsNow;
use crate::device::Health;
use crate::node_state::{DeviceState, NodeState};
use crate::steps;
use crate::units::Millis;
use keys::{NONE, digest_key, name_key};
use kinds::{BoardKeys, Kind, part};
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
    /// Of all boards.
    slots: u32,
    boards: Boards,
    /// The last of `sums` once more: as long as the state is young no others are read.
    last_sums: [Load; LAST_SUMS],
    /// Entry `i` has the sums over the newest `i` slices.
    sums: Box<[Load]>,
    /// Of the first board.
    kind: BoardKeys,
    /// The boards that answer.
    kinds: Box<[Kind]>,
    /// What the whole node did in the window when it was measured.
    measured: Load,
    /// Of the bitstreams of the state first the keys of all names, then those of all digests, then the age of the state, in
    /// milliseconds, from which each no longer counts as there.
    bitstreams: Box<[u64]>,
}

/// How many of the sums lie with what is always read.
const LAST_SUMS: usize = 3;

/// Whether a name means one thing on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boards {
    /// All its boards answer, and are of one vendor, kind, shell and platform.
    Uniform,
    /// All its boards are of one vendor, kind and shell.
    Alike,
    /// They are not.
    Mixed,
    /// None is known.
    None,
}

/// What the boards of one kind that answer did in a window, and what they have at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardsLoad {
    /// What they did together.
    pub load: Load,
    /// Their slots.
    pub slots: u32,
    /// Empty slots and waiting tasks.
    pub now: BoardsNow,
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
        let names = state.bitstreams.iter().map(|bitstream| bitstream.name.as_deref().map_or(NONE, name_key));
        let digests = state.bitstreams.iter().map(|bitstream| bitstream.digest.map_or(NONE, digest_key));
        let mut bitstreams: Vec<u64> = names.chain(digests).collect();
        let marks = bitstreams.iter().fold(0, |marks, key| marks | mark(*key));
        let kinds = Kind::all_of(state, &bitstreams);
        bitstreams.extend(ages_from_which_gone(state));
        let mut hasher = DefaultHasher::new();
        (window, state.buckets.bucket, &bitstreams).hash(&mut hasher);
        for kind in &kinds {
            (kind.keys, kind.slots, kind.measured).hash(&mut hasher);
        }
        sums.hash(&mut hasher);
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
            slots: u32::try_from(state.slots()).unwrap_or(u32::MAX),
            boards: Boards::of(state, &kinds),
            last_sums,
            sums: sums.into(),
            kind: state.devices.first().map(|device| BoardKeys::of(device, state)).unwrap_or_default(),
            kinds,
            measured: Load { usage: state.usage, reconfiguration: state.reconfiguration },
            bitstreams: bitstreams.into(),
        }
    }

    /// The age from which the state is stale, as [`NodeState::stale_after`] has it.
    #[must_use]
    pub fn stale_after(&self) -> Millis {
        self.stale_after
    }

    /// Whether its boards are alike and of this kind, those that don't answer included.
    #[must_use]
    pub fn all_are(&self, asked: &AskedKind) -> bool {
        match self.boards {
            Boards::Uniform => self.kind.are(asked),
            Boards::Alike => self.kind.are(asked) && self.kinds.iter().all(|kind| kind.keys.are(asked)),
            Boards::Mixed | Boards::None => false,
        }
    }

    /// Whether its boards are alike.
    #[must_use]
    pub fn boards(&self) -> Boards {
        self.boards
    }

    /// What its boards of this kind that answer did in the window that ends `age` after the measurement. What one kind of
    /// several did fades as the whole node does: time slices are published of the whole only.
    ///
    /// A node without such a board counts as one whose only slot was used all the time.
    #[must_use]
    pub fn load_on(&self, asked: &AskedKind, age: Millis) -> BoardsLoad {
        let whole = self.load_at(age);
        if self.boards == Boards::None || self.boards == Boards::Uniform && self.kind.are(asked) {
            return BoardsLoad { load: whole, slots: self.slots, now: self.boards_now };
        }
        let mut boards = BoardsLoad { load: Load::default(), slots: 0, now: BoardsNow::default() };
        for kind in self.kinds.iter().filter(|kind| kind.keys.are(asked)) {
            boards.load += kind.measured;
            boards.slots = boards.slots.saturating_add(kind.slots);
            boards.now += kind.now;
        }
        if boards.slots == 0 {
            boards.load = Load { usage: self.window, reconfiguration: self.window };
            return boards;
        }
        let fade = |of_boards: Millis, measured: Millis, now: Millis| match measured {
            // Only the slices say that there was something.
            Millis::ZERO => part(now, boards.slots.into(), self.slots.into()),
            measured => part(now, of_boards.0, measured.0),
        };
        boards.load = Load {
            usage: fade(boards.load.usage, self.measured.usage, whole.usage),
            reconfiguration: fade(
                boards.load.reconfiguration,
                self.measured.reconfiguration,
                whole.reconfiguration,
            ),
        };
        boards
    }

    /// What was used, in the window that ends `age` after the measurement, of the boards that a pod which asks for this kind
    /// runs on: those that suit it, or any if none does.
    #[must_use]
    pub fn usage_under(&self, asked: &AskedKind, age: Millis) -> Millis {
        if self.boards == Boards::Uniform || !self.suits(asked) {
            return self.load_at(age).usage;
        }
        self.load_on(asked, age).load.usage
    }

    /// The kinds of boards that a pod which asks for this kind runs on: the number of each among [`Self::kinds`], and its
    /// slots. A pod that is there although no board suits it may run on any.
    pub fn kinds_under(&self, asked: &AskedKind) -> impl Iterator<Item = (usize, u32)> {
        let asked = if self.suits(asked) { *asked } else { AskedKind::ANY };
        let kinds = self.kinds.iter().enumerate();
        kinds.filter(move |(_, kind)| kind.keys.are(&asked)).map(|(number, kind)| (number, kind.slots))
    }

    /// How many kinds of boards that answer there are.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Whether one of its boards that answer is of this kind.
    #[must_use]
    pub fn suits(&self, asked: &AskedKind) -> bool {
        self.kinds.iter().any(|kind| kind.keys.are(asked))
    }

    /// Whether a board of this kind that answers has the bitstream in a slot.
    #[must_use]
    pub fn has_loaded(&self, key: Key, asked: &AskedKind) -> bool {
        self.may_have(key) && self.kinds.iter().any(|kind| kind.keys.are(asked) && kind.has_loaded(key))
    }

    /// Differs where use or bitstreams do.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
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

/// Per bitstream the age of the state, in milliseconds, from which it no longer counts as there: what a board that answers
/// has in a slot stays.
fn ages_from_which_gone(state: &NodeState) -> impl Iterator<Item = u64> {
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

/// The bit that stands for a key.
fn mark(key: u64) -> u64 {
    1 << (key % 64)
}

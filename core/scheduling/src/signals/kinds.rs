//! The boards of a node by kind, with the slots, the load and the bitstreams of each kind.

use super::keys::{Key, NONE, name_key};
use super::load::WindowLoad;
use crate::boards_now::BoardsNow;
use crate::device::Health;
use crate::node_state::{DeviceState, NodeState};
use crate::requirement::Requirement;
use crate::steps;
use crate::units::Millis;
use std::collections::HashMap;

/// A board's kind as keys, which are compared faster than texts; see [`Key`] about collisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct BoardKeys {
    vendor: u64,
    board: u64,
    shell: u64,
    platform: u64,
}

/// The key that matches any other.
const ANY: u64 = 0;

/// The kind of board that a pod requests, as keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AskedKind {
    vendor: u64,
    board: u64,
    shell: u64,
    platform: u64,
}

/// The answering boards of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) keys: BoardKeys,
    pub(super) slots: u32,
    pub(super) now: BoardsNow,
    /// Load of these boards in the window at the time of the measurement, with their share of the load that no board
    /// is named for.
    pub(super) measured: WindowLoad,
    /// Sorted keys of the bitstreams in their slots.
    loaded: Box<[u64]>,
}

impl AskedKind {
    /// Any kind of board.
    pub const ANY: Self = Self { vendor: ANY, board: ANY, shell: ANY, platform: ANY };

    /// The kind of board that `asked` requests.
    #[must_use]
    pub fn of(asked: &Requirement) -> Self {
        let key = |text: &Option<String>| text.as_deref().map_or(ANY, name_key);
        Self {
            vendor: key(&asked.vendor),
            board: key(&asked.board),
            shell: key(&asked.shell),
            platform: key(&asked.platform),
        }
    }
}

impl BoardKeys {
    pub(super) fn of(device: &DeviceState, state: &NodeState) -> Self {
        // A platform that was left out may be any platform.
        let is_left_out = device.platform.is_empty() && state.left_out.platforms > 0;
        Self {
            vendor: name_key(&device.vendor),
            board: name_key(&device.board),
            shell: name_key(&device.shell),
            platform: if is_left_out { ANY } else { name_key(&device.platform) },
        }
    }

    /// Whether a board of this kind is of the kind `asked`.
    pub(super) fn are(&self, asked: &AskedKind) -> bool {
        let agree = |asked: u64, is: u64| asked == ANY || asked == is || is == ANY;
        agree(asked.vendor, self.vendor)
            && agree(asked.board, self.board)
            && agree(asked.shell, self.shell)
            && agree(asked.platform, self.platform)
    }
}

impl Kind {
    /// The kinds of the boards of `state`, in the order of the boards. `keys` has the keys of all bitstreams, names
    /// first, then digests.
    pub(super) fn all_of(state: &NodeState, keys: &[u64]) -> Box<[Self]> {
        let mut numbers: HashMap<BoardKeys, usize> = HashMap::new();
        let mut kinds: Vec<(Self, Vec<&DeviceState>)> = Vec::new();
        for device in state.devices.iter().filter(|device| device.health == Health::Healthy) {
            let keys = BoardKeys::of(device, state);
            let number = *numbers.entry(keys).or_insert(kinds.len());
            if number == kinds.len() {
                let (now, measured) = (BoardsNow::default(), WindowLoad::default());
                kinds.push((Self { keys, slots: 0, now, measured, loaded: Box::default() }, Vec::new()));
            }
            let (kind, devices) = &mut kinds[number];
            kind.slots = kind.slots.saturating_add(device.slots);
            kind.measured.usage += device.usage;
            kind.measured.reconfiguration += device.reconfiguration;
            devices.push(device);
        }
        let all_slots = state.slots();
        let WindowLoad { usage, reconfiguration } = unattributed(state);
        let with_devices = |(mut kind, devices): (Self, Vec<&DeviceState>)| {
            let slots = u64::from(kind.slots);
            kind.measured.usage += part(usage, slots, all_slots);
            kind.measured.reconfiguration += part(reconfiguration, slots, all_slots);
            kind.loaded = loaded_keys(&devices, keys);
            kind.now = BoardsNow::of(devices);
            kind
        };
        kinds.into_iter().map(with_devices).collect()
    }

    /// Whether one of these boards has the bitstream in a slot.
    pub(super) fn has_loaded(&self, key: Key) -> bool {
        let (Key::Name(key) | Key::Digest(key)) = key;
        self.loaded.binary_search(&key).is_ok()
    }
}

/// The load of the node that no board is named for.
fn unattributed(state: &NodeState) -> WindowLoad {
    let mut attributed = WindowLoad::default();
    for device in &state.devices {
        attributed.usage += device.usage;
        attributed.reconfiguration += device.reconfiguration;
    }
    WindowLoad {
        usage: state.usage - attributed.usage,
        reconfiguration: state.reconfiguration - attributed.reconfiguration,
    }
}

fn loaded_keys(devices: &[&DeviceState], keys: &[u64]) -> Box<[u64]> {
    let (names, digests) = keys.split_at(keys.len() / 2);
    let keys_of = |index: &u32| {
        steps::count(1);
        [names, digests].map(|keys| keys.get(*index as usize).copied().filter(|key| *key != NONE))
    };
    let loaded = devices.iter().flat_map(|device| &device.loaded);
    let mut keys: Vec<u64> = loaded.flat_map(keys_of).flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into()
}

/// `amount × share / whole`, at most `amount`.
pub(super) fn part(amount: Millis, share: u64, whole: u64) -> Millis {
    if share >= whole {
        return amount;
    }
    let part = u128::from(amount.0) * u128::from(share) / u128::from(whole.max(1));
    Millis(u64::try_from(part).unwrap_or(u64::MAX))
}

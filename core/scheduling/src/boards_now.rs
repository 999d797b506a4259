//! Empty slots and waiting tasks of a node's boards. The paper does not have these two signals.
//!
//! Unlike usage, these values do not fade as a state ages: they are the last ones that the collector saw. Boards that
//! do not answer count neither slots nor tasks.

use crate::device::Health;
use crate::node_state::DeviceState;
use serde::Serialize;
use std::ops::AddAssign;

/// Empty slots and waiting tasks of those boards of a node that answer and are of the requested kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoardsNow {
    /// Slots that hold no bitstream: one more bitstream can be loaded without evicting another.
    pub free_slots: u32,
    /// Tasks that wait for a slot.
    pub queued: u32,
}

impl BoardsNow {
    /// The sums over those `devices` that answer, whatever their kind.
    #[must_use]
    pub fn of<'d>(devices: impl IntoIterator<Item = &'d DeviceState>) -> Self {
        let mut now = Self::default();
        for device in devices.into_iter().filter(|device| device.health == Health::Healthy) {
            let held = u32::try_from(device.loaded.len()).unwrap_or(u32::MAX);
            now.free_slots = now.free_slots.saturating_add(device.slots.saturating_sub(held));
            now.queued = now.queued.saturating_add(device.queued);
        }
        now
    }
}

impl AddAssign for BoardsNow {
    fn add_assign(&mut self, other: Self) {
        self.free_slots = self.free_slots.saturating_add(other.free_slots);
        self.queued = self.queued.saturating_add(other.queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{mk_asked, mk_device, mk_state};
    use crate::node_state::NodeState;
    use crate::requirement::Requirement;
    use crate::signals::{AskedKind, Signals};
    use crate::units::Millis;
    use proptest::prelude::*;

    fn board(kind: &str, loaded: u32, queued: u32, health: Health) -> DeviceState {
        let loaded = (0..loaded).collect();
        DeviceState { loaded, queued, health, ..mk_device("intel", kind, "1") }
    }

    fn on(board: Option<&str>, devices: Vec<DeviceState>) -> (u32, u32) {
        let asked = Requirement { board: board.map(str::to_owned), ..mk_asked(&[]) };
        let signals = Signals::of(&NodeState { devices, ..mk_state() });
        let now = signals.load_on(&AskedKind::of(&asked), Millis::ZERO).now;
        (now.free_slots, now.queued)
    }

    #[test]
    fn free_slots_and_waiting_tasks_are_summed_over_the_boards_of_the_asked_kind_that_answer() {
        use Health::{Healthy, Unhealthy};
        let alike = vec![board("a10", 1, 2, Healthy), board("a10", 4, 5, Healthy)];
        assert_eq!(on(None, alike.clone()), (3, 7));
        assert_eq!(on(Some("a10"), alike.clone()), (3, 7));
        assert_eq!(on(Some("s10"), alike), (0, 0));
        let mixed = vec![board("a10", 1, 2, Healthy), board("s10", 0, 1, Healthy)];
        assert_eq!((on(None, mixed.clone()), on(Some("s10"), mixed)), ((7, 3), (4, 1)));
        assert_eq!(on(None, vec![board("a10", 0, 9, Unhealthy), board("a10", 2, 0, Healthy)]), (2, 0));
        assert_eq!(on(None, Vec::new()), (0, 0));
    }

    proptest! {
        #[test]
        fn precomputed_sums_equal_the_sums_over_the_boards(
            boards in prop::collection::vec((0..2_u8, 0..4_u32, 0..u32::MAX, any::<bool>()), 0..6), asked: Option<bool>,
        ) {
            let kind = |second: bool| if second { "s10" } else { "a10" };
            let devices: Vec<_> = boards
                .iter()
                .map(|(second, loaded, queued, sick)| {
                    let health = if *sick { Health::Unhealthy } else { Health::Healthy };
                    board(kind(*second == 1), *loaded, *queued, health)
                })
                .collect();
            let of_kind = |device: &&DeviceState| asked.is_none_or(|second| device.board == kind(second));
            let slow = BoardsNow::of(devices.iter().filter(of_kind));
            prop_assert_eq!(on(asked.map(kind), devices), (slow.free_slots, slow.queued));
        }
    }
}

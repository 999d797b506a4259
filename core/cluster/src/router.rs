//! Choice of the replica that serves a request (S-11): one whose idle slot holds the bitstream, else one with an idle
//! slot where the load evicts the least valuable bitstream, else the one with the shortest queue. A request never
//! waits while a replica has an idle slot.
//!
//! The caller knows the slots and queues. Today that is the simulator; no service uses the module.

use std::num::NonZeroU32;

/// A slot of a board; `B` identifies a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot<B> {
    /// Bitstream in the slot.
    pub resident: Option<B>,
    /// Whether a request uses the slot.
    pub state: SlotState,
    /// Logical time of the last use, comparable over all boards.
    pub last_use: u64,
}

/// Whether a request uses a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// No request uses the slot.
    Idle,
    /// A request uses the slot.
    Busy,
}

/// The board of a replica.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a, B> {
    /// Slots of the board.
    pub slots: &'a [Slot<B>],
    /// Number of requests that wait for a slot of the board.
    pub waiting: usize,
}

impl<B: PartialEq> Board<'_, B> {
    fn copies(&self, of: B) -> NonZeroU32 {
        let of = Some(of);
        let copies = self.slots.iter().filter(|slot| slot.resident == of).count();
        u32::try_from(copies).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }
}

/// The index in `boards` of the replica that serves a request for `wanted`; `None` if there is no board. `worth` is
/// the value of keeping a bitstream on a board, from the board's index, the bitstream and the number of slots that
/// hold it. Of equal values the slot unused for the longest time is chosen.
pub fn choose<'a, B: Copy + PartialEq + 'a, W: Ord>(
    boards: impl IntoIterator<Item = Board<'a, B>>,
    wanted: B,
    worth: impl Fn(usize, B, NonZeroU32) -> W,
) -> Option<usize> {
    let mut cheapest: Option<((Option<W>, u64), usize)> = None;
    let mut calmest: Option<(usize, usize)> = None;
    for (place, board) in boards.into_iter().enumerate() {
        let mut idle = board.slots.iter().filter(|slot| slot.state == SlotState::Idle).peekable();
        if idle.peek().is_none() {
            let waiting = (board.waiting, place);
            calmest = Some(calmest.map_or(waiting, |calmest| calmest.min(waiting)));
        }
        for slot in idle {
            if slot.resident == Some(wanted) {
                return Some(place);
            }
            // An empty slot evicts nothing: `None` is less than any value.
            let cost = slot.resident.map(|resident| worth(place, resident, board.copies(resident)));
            let cost = (cost, slot.last_use);
            if cheapest.as_ref().is_none_or(|(least, _)| cost < *least) {
                cheapest = Some((cost, place));
            }
        }
    }
    cheapest.map(|(_, place)| place).or(calmest.map(|(_, place)| place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(resident: Option<char>, state: SlotState, last_use: u64) -> Slot<char> {
        Slot { resident, state, last_use }
    }

    fn chosen(boards: &[(&[Slot<char>], usize)], wanted: char) -> Option<usize> {
        let boards = boards.iter().map(|(slots, waiting)| Board { slots, waiting: *waiting });
        choose(boards, wanted, |_, bitstream, copies| u32::from(bitstream) / copies)
    }

    #[test]
    fn an_idle_slot_with_the_bitstream_comes_first_then_an_empty_one_then_the_least_loss() {
        use SlotState::{Busy, Idle};
        let busy = [slot(Some('w'), Busy, 9)];
        let holds = [slot(Some('z'), Idle, 1), slot(Some('w'), Idle, 5)];
        let empty = [slot(None, Idle, 0)];
        let (dear, cheap) = ([slot(Some('z'), Idle, 1)], [slot(Some('a'), Idle, 7)]);
        assert_eq!(chosen(&[(&busy, 0), (&empty, 0), (&holds, 0)], 'w'), Some(2));
        assert_eq!(chosen(&[(&busy, 0), (&dear, 0), (&empty, 0)], 'w'), Some(2));
        assert_eq!(chosen(&[(&busy, 0), (&dear, 0), (&cheap, 0)], 'w'), Some(2));
        let older = [slot(Some('a'), Idle, 3)];
        assert_eq!(chosen(&[(&cheap, 0), (&older, 0)], 'w'), Some(1), "worth the same: the longest unused");
        assert_eq!(chosen(&[(&busy, 2), (&busy, 1), (&busy, 1)], 'w'), Some(1), "the shortest queue");
        assert_eq!(chosen(&[], 'w'), None);
    }

    #[test]
    fn one_of_several_copies_is_less_of_a_loss() {
        use SlotState::{Busy, Idle};
        let twice = [slot(Some('z'), Idle, 8), slot(Some('z'), Busy, 9)];
        let once = [slot(Some('y'), Idle, 1), slot(Some('x'), Busy, 2)];
        assert_eq!(chosen(&[(&once, 0), (&twice, 0)], 'w'), Some(1), "what is used counts as a copy, too");
    }

    fn any_slot() -> impl Strategy<Value = Slot<char>> {
        let resident = prop::option::of(prop::char::range('a', 'e'));
        (resident, any::<bool>(), 0_u64..20).prop_map(|(resident, busy, last_use)| {
            slot(resident, if busy { SlotState::Busy } else { SlotState::Idle }, last_use)
        })
    }

    proptest! {
        #[test]
        fn no_request_waits_or_loads_without_need(
            boards in prop::collection::vec((prop::collection::vec(any_slot(), 1..4), 0_usize..4), 1..6),
            wanted in prop::char::range('a', 'e'),
        ) {
            let known: Vec<(&[Slot<char>], usize)> =
                boards.iter().map(|(slots, waiting)| (&slots[..], *waiting)).collect();
            let place = chosen(&known, wanted).unwrap();
            let idle = |board: &(Vec<Slot<char>>, usize)| board.0.iter().any(|slot| slot.state == SlotState::Idle);
            let has = |board: &(Vec<Slot<char>>, usize)| {
                board.0.iter().any(|slot| slot.state == SlotState::Idle && slot.resident == Some(wanted))
            };
            prop_assert_eq!(idle(&boards[place]), boards.iter().any(idle));
            prop_assert_eq!(has(&boards[place]), boards.iter().any(has));
            if !boards.iter().any(idle) {
                prop_assert!(boards.iter().all(|board| board.1 >= boards[place].1));
            }
        }
    }
}

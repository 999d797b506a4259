//! Choice of the replica that serves a request (S-11): one whose idle slot holds the bitstream, else one with an idle
//! slot where the load evicts the least valuable bitstream, else the one with the shortest queue. A request never
//! waits while a replica has an idle slot.
//!
//! The caller knows the slots and queues: the simulator by itself, the endpoint picker from the states of the nodes
//! and its own requests ([`crate::tracked_board`]).

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

/// The board of a replica. A board about which nothing is known has no slots, and as many waiting requests as are in
/// flight there.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a, B> {
    /// Slots of the board.
    pub slots: &'a [Slot<B>],
    /// Number of requests that wait for a slot of the board.
    pub waiting: usize,
    /// Number of requests in flight, by which boards are compared that are equal otherwise.
    pub in_flight: usize,
}

/// How well a board serves a request; the least value is the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit<W> {
    /// An idle slot has the bitstream.
    Resident,
    /// An idle slot can be loaded. An empty one evicts nothing: `None` is less than any value.
    Load { evicted: Option<W>, last_use: u64 },
    /// The request waits behind so many others.
    Wait { waiting: usize },
}

impl<B: Copy + PartialEq> Board<'_, B> {
    fn copies(&self, of: B) -> NonZeroU32 {
        let of = Some(of);
        let copies = self.slots.iter().filter(|slot| slot.resident == of).count();
        u32::try_from(copies).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
    }

    fn idle(&self) -> impl Iterator<Item = &Slot<B>> {
        self.slots.iter().filter(|slot| slot.state == SlotState::Idle)
    }

    fn has_idle(&self, bitstream: B) -> bool {
        self.idle().any(|slot| slot.resident == Some(bitstream))
    }

    /// The fit of a board that serves the request without evicting anything, which is better than that of any other.
    fn fit_without_eviction<W>(&self, wanted: B) -> Option<Fit<W>> {
        if self.has_idle(wanted) {
            return Some(Fit::Resident);
        }
        let empty = self.idle().filter(|slot| slot.resident.is_none());
        let last_use = empty.map(|slot| slot.last_use).min()?;
        Some(Fit::Load { evicted: None, last_use })
    }

    fn fit<W: Ord>(&self, wanted: B, worth: impl Fn(B, NonZeroU32) -> W) -> Fit<W> {
        let load = |slot: &Slot<B>| {
            let evicted = slot.resident.map(|resident| worth(resident, self.copies(resident)));
            Fit::Load { evicted, last_use: slot.last_use }
        };
        let evicting = || self.idle().map(load).min();
        self.fit_without_eviction(wanted).or_else(evicting).unwrap_or(Fit::Wait { waiting: self.waiting })
    }
}

/// The index in `boards` of the replica that serves a request for `wanted`; `None` if there is no board. `worth` is
/// the value of keeping a bitstream on a board, from the board's index, the bitstream and the number of slots that
/// hold it. Of equal values the slot unused for the longest time is chosen, then the board with the fewest requests in
/// flight, then the first.
pub fn choose<'a, B: Copy + PartialEq + 'a, W: Ord>(
    boards: impl IntoIterator<Item = Board<'a, B>>,
    wanted: B,
    worth: impl Fn(usize, B, NonZeroU32) -> W,
) -> Option<usize> {
    let mut best: Option<(Fit<W>, usize, usize)> = None;
    for (place, board) in boards.into_iter().enumerate() {
        // What a load would cost on the others is of no interest then.
        if matches!(best, Some((Fit::Resident, ..))) && !board.has_idle(wanted) {
            continue;
        }
        let fit = board.fit(wanted, |resident, copies| worth(place, resident, copies));
        let candidate = (fit, board.in_flight, place);
        if best.as_ref().is_none_or(|best| candidate < *best) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, place)| place)
}

/// The boards that a request for `wanted` should try, the best first and at most `most`, as indexes in `boards`. Each board
/// comes with its replica; the boards of one replica follow each other. A replica is as good as its best board for the
/// request, which is the board that the request is counted on, and no replica is tried twice.
///
/// The first is that of [`choose`], and each further one is what it would be without the replicas before.
pub fn rank<'a, R: PartialEq, B: Copy + PartialEq + 'a, W: Ord>(
    boards: impl IntoIterator<Item = (R, Board<'a, B>)>,
    wanted: B,
    worth: impl Fn(usize, B, NonZeroU32) -> W,
    most: usize,
) -> Vec<usize> {
    if most == 0 {
        return Vec::new();
    }
    let boards: Vec<(R, Board<'a, B>)> = boards.into_iter().collect();
    // What a load would cost on the others is of no interest if enough replicas evict nothing. It is most of the work.
    let is_cheap = |board: &Board<'_, B>| board.fit_without_eviction::<W>(wanted).is_some();
    let cheap = boards.chunk_by(|one, next| one.0 == next.0);
    let cheap = cheap.filter(|boards| boards.iter().any(|(_, board)| is_cheap(board)));
    let only_cheap = cheap.take(most).count() == most;
    let mut best: Vec<(Fit<W>, usize, usize)> = Vec::with_capacity(boards.len());
    let mut place = 0;
    for of_replica in boards.chunk_by(|one, next| one.0 == next.0) {
        let places = (place..).zip(of_replica).filter(|(_, (_, board))| !only_cheap || is_cheap(board));
        let fits = places.map(|(place, (_, board))| {
            (board.fit(wanted, |resident, copies| worth(place, resident, copies)), board.in_flight, place)
        });
        best.extend(fits.min());
        place += of_replica.len();
    }
    if best.len() > most {
        best.select_nth_unstable(most - 1);
        best.truncate(most);
    }
    best.sort_unstable();
    best.into_iter().map(|(_, _, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot(resident: Option<char>, state: SlotState, last_use: u64) -> Slot<char> {
        Slot { resident, state, last_use }
    }

    fn board((slots, waiting): (&[Slot<char>], usize)) -> Board<'_, char> {
        Board { slots, waiting, in_flight: 0 }
    }

    fn worth(_: usize, bitstream: char, copies: NonZeroU32) -> u32 {
        u32::from(bitstream) / copies
    }

    fn chosen(boards: &[(&[Slot<char>], usize)], wanted: char) -> Option<usize> {
        choose(boards.iter().copied().map(board), wanted, worth)
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

    #[test]
    fn of_equal_boards_the_one_with_the_fewest_requests_in_flight_comes_first() {
        let slots = [slot(Some('w'), SlotState::Idle, 1)];
        let boards = [3, 1, 2, 1].map(|in_flight| Board { slots: &slots, waiting: 0, in_flight });
        assert_eq!(rank((0..).zip(boards), 'w', worth, 3), [1, 3, 2]);
        let unknown = [2, 0, 1].map(|in_flight| Board { slots: &[], waiting: in_flight, in_flight });
        let unknown = || (0..).zip(unknown);
        assert_eq!(rank(unknown(), 'w', worth, 9), [1, 2, 0], "without knowledge the least in flight");
        assert_eq!(rank(unknown(), 'w', worth, 0), [0; 0]);
    }

    #[test]
    fn a_replica_with_several_boards_is_as_good_as_the_best_of_them() {
        use SlotState::{Busy, Idle};
        let cold = [slot(Some('z'), Idle, 1)];
        let warm = [slot(Some('w'), Idle, 5)];
        let busy = [slot(Some('w'), Busy, 9)];
        let empty = [slot(None, Idle, 0)];
        for (what, boards, expected) in [
            ("the second board is warm", vec![(0, &cold), (0, &warm), (1, &empty)], vec![1, 2]),
            ("the first one is", vec![(0, &warm), (0, &cold), (1, &empty)], vec![0, 2]),
            ("another replica's is", vec![(0, &cold), (0, &busy), (1, &warm)], vec![2, 0]),
            (
                "one with room for one without",
                vec![(0, &busy), (0, &cold), (1, &busy), (1, &busy)],
                vec![1, 2],
            ),
            ("a replica is tried once", vec![(0, &warm), (0, &warm), (0, &warm)], vec![0]),
            ("one board each", vec![(0, &cold), (1, &warm), (2, &empty)], vec![1, 2, 0]),
        ] {
            let views = boards.iter().map(|(replica, slots)| (*replica, board((&slots[..], 0))));
            assert_eq!(rank(views, 'w', worth, 9), expected, "{what}");
        }
    }

    fn any_slot() -> impl Strategy<Value = Slot<char>> {
        let resident = prop::option::of(prop::char::range('a', 'e'));
        (resident, any::<bool>(), 0_u64..20).prop_map(|(resident, busy, last_use)| {
            slot(resident, if busy { SlotState::Busy } else { SlotState::Idle }, last_use)
        })
    }

    fn any_boards(least: usize) -> impl Strategy<Value = Vec<(Vec<Slot<char>>, usize)>> {
        prop::collection::vec((prop::collection::vec(any_slot(), 1..4), 0_usize..4), least..6)
    }

    proptest! {
        #[test]
        fn no_request_waits_or_loads_without_need(
            boards in any_boards(1),
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

        #[test]
        fn each_further_replica_is_the_choice_without_those_before(
            boards in any_boards(0), wanted in prop::char::range('a', 'e'), most in 0_usize..7,
            starts in prop::collection::vec(any::<bool>(), 6),
        ) {
            // A board begins a new replica, or is one more of the replica before.
            let replicas: Vec<usize> = starts
                .iter()
                .scan(0, |replica, starts| {
                    *replica += usize::from(*starts);
                    Some(*replica)
                })
                .collect();
            let view = |place: usize| board((&boards[place].0[..], boards[place].1));
            let ranked = rank((0..boards.len()).map(|place| (replicas[place], view(place))), wanted, worth, most);
            let mut left: Vec<usize> = (0..boards.len()).collect();
            let mut expected = Vec::new();
            while expected.len() < most && !left.is_empty() {
                let next = left[choose(left.iter().copied().map(view), wanted, worth).unwrap()];
                expected.push(next);
                left.retain(|place| replicas[*place] != replicas[next]);
            }
            prop_assert_eq!(ranked, expected);
        }
    }
}

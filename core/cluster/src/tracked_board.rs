//! What a request router believes of one board: the state that the board's node published, corrected by the router's
//! own requests, which it knows at once.
//!
//! A request counts from the choice on. One that finds no idle slot with its bitstream takes the slot that the device
//! manager would load, so that two requests in a row don't count on the same slot. A state was measured a moment ago:
//! what the router's own requests did to a slot in the last [`SETTLING`] is believed more than the state.

use crate::router::{Board, Slot, SlotState};
use fpga_board::reuse::Foresight;
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Time for which a slot that a request has used is not taken from a state: states come about twice a second, some
/// time after the measurement.
pub const SETTLING: Millis = Millis(1_500);

/// Most slots of a board that are told apart.
pub const MOST_SLOTS: usize = 256;

/// A board, and the requests that were sent to it; `B` identifies a bitstream.
#[derive(Debug, Clone)]
pub struct TrackedBoard<B> {
    slots: Vec<Slot<B>>,
    /// What the router's requests do with each slot.
    own: Vec<OwnUse>,
    /// Requests in flight by their bitstream.
    in_flight: BTreeMap<B, usize>,
    total: usize,
    /// Requests that wait for a slot and came another way.
    others_waiting: usize,
    /// Most own requests that waited since the last state, and between the two states before.
    most_waiting: [usize; 2],
    foresight: Foresight<B>,
}

/// The use of a slot by the router's own requests.
#[derive(Debug, Clone, Copy, Default)]
struct OwnUse {
    /// Whether one uses the slot.
    busy: bool,
    /// When one used it last.
    at: Option<MonotonicTime>,
}

/// A bitstream in a slot, as a state tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded<B> {
    /// The bitstream.
    pub bitstream: B,
    /// When a task used the bitstream last.
    pub last_use: MonotonicTime,
}

impl<B: Copy + Ord> Default for TrackedBoard<B> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            own: Vec::new(),
            in_flight: BTreeMap::new(),
            total: 0,
            others_waiting: 0,
            most_waiting: [0; 2],
            foresight: Foresight::default(),
        }
    }
}

impl<B: Copy + Ord> TrackedBoard<B> {
    /// The board as [`crate::router`] sees it.
    #[must_use]
    pub fn board(&self) -> Board<'_, B> {
        let waiting = self.waiting() + self.others_waiting;
        Board { slots: &self.slots, waiting, in_flight: self.total }
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.total
    }

    /// The value of keeping one of `copies` copies of a bitstream on the board.
    #[must_use]
    pub fn worth(&self, bitstream: B, copies: NonZeroU32, now: MonotonicTime) -> u32 {
        self.foresight.worth(bitstream, copies, now)
    }

    /// Records that a request for `bitstream` is sent to the board.
    pub fn begin(&mut self, bitstream: B, now: MonotonicTime) {
        self.foresight.used(bitstream, now);
        self.adopt(bitstream, 1, now);
    }

    /// Records that `requests` requests for `bitstream` are in flight on the board, which was not known when they
    /// began.
    pub fn adopt(&mut self, bitstream: B, requests: usize, now: MonotonicTime) {
        if requests > 0 {
            *self.in_flight.entry(bitstream).or_default() += requests;
            self.total += requests;
            self.occupy(now);
        }
    }

    /// Records that `requests` requests for `bitstream` have ended.
    pub fn end(&mut self, bitstream: B, requests: usize, now: MonotonicTime) {
        let Some(in_flight) = self.in_flight.get_mut(&bitstream) else { return };
        let ended = requests.min(*in_flight);
        *in_flight -= ended;
        if *in_flight == 0 {
            self.in_flight.remove(&bitstream);
        }
        self.total -= ended;
        self.occupy(now);
    }

    /// Takes a state of the board: its number of slots, the bitstreams in them, and the number of tasks that wait.
    pub fn learn(
        &mut self,
        slots: u32,
        loaded: impl IntoIterator<Item = Loaded<B>>,
        queued: u32,
        now: MonotonicTime,
    ) {
        let slots = usize::try_from(slots).unwrap_or(MOST_SLOTS).clamp(1, MOST_SLOTS);
        let empty = Slot { resident: None, state: SlotState::Idle, last_use: 0 };
        self.slots.resize(slots, empty);
        self.own.resize(slots, OwnUse::default());
        let mut loaded: Vec<Loaded<B>> = loaded.into_iter().take(slots).collect();
        let mut unsettled = Vec::new();
        for (index, (slot, own)) in self.slots.iter_mut().zip(&self.own).enumerate() {
            let same = loaded.iter().position(|loaded| Some(loaded.bitstream) == slot.resident);
            let settling = own.busy || own.at.is_some_and(|at| now - at < SETTLING);
            match same {
                Some(same) => {
                    let same = loaded.remove(same);
                    slot.last_use = slot.last_use.max(same.last_use.0);
                }
                None if settling => {}
                None => unsettled.push(index),
            }
        }
        let mut loaded = loaded.into_iter();
        for index in unsettled {
            let loaded = loaded.next();
            if let Some(slot) = self.slots.get_mut(index) {
                slot.resident = loaded.map(|loaded| loaded.bitstream);
                slot.last_use = loaded.map_or(0, |loaded| loaded.last_use.0);
            }
        }
        // The state counts own requests as well, those that waited when it was measured.
        let own = self.most_waiting.into_iter().max().unwrap_or(0);
        self.others_waiting = usize::try_from(queued).unwrap_or(usize::MAX).saturating_sub(own);
        self.most_waiting = [self.waiting(), self.most_waiting[0]];
        self.occupy(now);
    }

    fn waiting(&self) -> usize {
        self.total.saturating_sub(self.slots.len())
    }

    /// Marks the slots that the requests in flight use, and loads idle slots for requests without one.
    fn occupy(&mut self, now: MonotonicTime) {
        let mut left = self.in_flight.clone();
        for (slot, own) in self.slots.iter_mut().zip(&mut self.own) {
            let was_busy = std::mem::take(&mut own.busy);
            slot.state = SlotState::Idle;
            if let Some(requests) = slot.resident.and_then(|resident| left.get_mut(&resident))
                && *requests > 0
            {
                *requests -= 1;
                slot.state = SlotState::Busy;
                own.busy = true;
            }
            if was_busy || own.busy {
                slot.last_use = slot.last_use.max(now.0);
                own.at = Some(now);
            }
        }
        for (bitstream, mut requests) in left {
            while requests > 0 {
                let Some(index) = self.to_load(now) else { break };
                self.load(index, bitstream, now);
                requests -= 1;
            }
        }
        self.most_waiting[0] = self.most_waiting[0].max(self.waiting());
        if self.others_waiting > 0 {
            self.slots.iter_mut().for_each(|slot| slot.state = SlotState::Busy);
        }
    }

    /// The idle slot that the device manager would load.
    fn to_load(&self, now: MonotonicTime) -> Option<usize> {
        let copies = |resident: B| {
            let copies = self.slots.iter().filter(|slot| slot.resident == Some(resident)).count();
            u32::try_from(copies).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
        };
        let cost = |slot: &Slot<B>| {
            (slot.resident.map(|resident| self.worth(resident, copies(resident), now)), slot.last_use)
        };
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.state == SlotState::Idle);
        idle.min_by_key(|(_, slot)| cost(slot)).map(|(index, _)| index)
    }

    fn load(&mut self, index: usize, bitstream: B, now: MonotonicTime) {
        let (Some(slot), Some(own)) = (self.slots.get_mut(index), self.own.get_mut(index)) else { return };
        let evicted = slot.resident.replace(bitstream);
        (slot.state, slot.last_use) = (SlotState::Busy, now.0);
        *own = OwnUse { busy: true, at: Some(now) };
        if let Some(evicted) = evicted {
            self.foresight.evicted(evicted, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: MonotonicTime = MonotonicTime(1_000_000);

    fn loaded(bitstreams: &str) -> impl Iterator<Item = Loaded<char>> {
        bitstreams.chars().map(|bitstream| Loaded { bitstream, last_use: MonotonicTime(1) })
    }

    fn known(slots: u32, bitstreams: &str) -> TrackedBoard<char> {
        let mut board = TrackedBoard::default();
        board.learn(slots, loaded(bitstreams), 0, T0);
        board
    }

    /// The slots as text: a bitstream is a small letter in an idle slot and a capital in a busy one.
    fn text(board: &TrackedBoard<char>) -> String {
        let of_slot = |slot: &Slot<char>| match (slot.resident, slot.state) {
            (Some(resident), SlotState::Busy) => resident.to_ascii_uppercase(),
            (Some(resident), SlotState::Idle) => resident,
            (None, SlotState::Busy) => '#',
            (None, SlotState::Idle) => '-',
        };
        board.board().slots.iter().map(of_slot).collect()
    }

    #[test]
    fn a_request_takes_the_slot_with_its_bitstream_else_an_empty_one_and_then_waits() {
        let mut board = known(3, "ab");
        board.begin('b', T0);
        assert_eq!(text(&board), "aB-");
        board.begin('c', T0);
        assert_eq!(text(&board), "aBC");
        board.begin('c', T0);
        assert_eq!(text(&board), "CBC", "the load evicts what is left");
        board.begin('a', T0);
        assert_eq!((text(&board).as_str(), board.board().waiting, board.in_flight()), ("CBC", 1, 4));
        board.end('b', 1, T0);
        assert_eq!(
            (text(&board).as_str(), board.board().waiting),
            ("CAC", 0),
            "the waiting one takes its place"
        );
        board.end('c', 2, T0);
        board.end('a', 9, T0);
        assert_eq!((text(&board).as_str(), board.in_flight()), ("cac", 0));
    }

    #[test]
    fn what_requests_did_a_moment_ago_is_believed_more_than_a_state_and_later_the_state() {
        let mut board = known(2, "ab");
        board.begin('c', T0);
        board.end('c', 1, T0 + Millis(10));
        let with_c = text(&board);
        assert!(with_c.contains('c'), "{with_c}");
        board.learn(2, loaded("ab"), 0, T0 + Millis(400));
        assert!(text(&board).contains('c'), "the state was measured before the load: {}", text(&board));
        board.learn(2, loaded("ab"), 0, T0 + Millis(10) + SETTLING);
        let mut known: Vec<char> = text(&board).chars().collect();
        known.sort_unstable();
        assert_eq!(known, ['a', 'b'], "it was never loaded");
    }

    #[test]
    fn a_slot_that_a_request_uses_is_not_taken_from_a_state_however_long_it_takes() {
        let mut board = known(1, "a");
        board.begin('b', T0);
        board.learn(1, loaded("a"), 0, T0 + Millis::from_secs(60));
        assert_eq!(text(&board), "B");
        board.learn(3, loaded("bxy"), 0, T0 + Millis::from_secs(61));
        assert_eq!(text(&board), "Bxy", "a board may get more slots");
    }

    #[test]
    fn requests_that_came_another_way_make_a_board_busy_but_not_the_routers_own() {
        let mut board = known(1, "a");
        for _ in 0..3 {
            board.begin('a', T0);
        }
        board.learn(1, loaded("a"), 2, T0);
        assert_eq!(board.board().waiting, 2, "the state counts the own ones");
        board.end('a', 3, T0);
        board.learn(1, loaded("a"), 2, T0 + Millis(400));
        assert_eq!((text(&board).as_str(), board.board().waiting), ("a", 0), "measured before they ended");
        board.learn(1, loaded("a"), 2, T0 + Millis(900));
        board.learn(1, loaded("a"), 2, T0 + Millis(1_400));
        assert_eq!((text(&board).as_str(), board.board().waiting), ("A", 2), "strangers wait");
        board.learn(1, loaded("a"), 0, T0 + Millis(1_900));
        assert_eq!(text(&board), "a");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin(char),
        End(char),
        Learn(u32, String, u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            prop::char::range('a', 'e').prop_map(Step::Begin),
            prop::char::range('a', 'e').prop_map(Step::End),
            (0_u32..5, "[a-e]{0,6}", 0_u32..3)
                .prop_map(|(slots, has, queued)| Step::Learn(slots, has, queued)),
        ]
    }

    proptest! {
        #[test]
        fn requests_are_counted_exactly_and_use_as_many_slots_as_there_are(
            steps in prop::collection::vec((any_step(), 0_u64..2_000), 0..60),
        ) {
            let mut board = known(2, "a");
            let (mut now, mut counts, mut others) = (T0, BTreeMap::<char, usize>::new(), 0);
            for (step, later) in steps {
                now += Millis(later);
                match step {
                    Step::Begin(bitstream) => {
                        board.begin(bitstream, now);
                        *counts.entry(bitstream).or_default() += 1;
                    }
                    Step::End(bitstream) => {
                        board.end(bitstream, 1, now);
                        let count = counts.entry(bitstream).or_default();
                        *count = count.saturating_sub(1);
                    }
                    Step::Learn(slots, has, queued) => {
                        board.learn(slots, loaded(&has), queued, now);
                        others = board.others_waiting;
                    }
                }
                let total: usize = counts.values().sum();
                prop_assert_eq!(board.in_flight(), total);
                let view = board.board();
                let busy = view.slots.iter().filter(|slot| slot.state == SlotState::Busy).count();
                let expected = if others > 0 { view.slots.len() } else { total.min(view.slots.len()) };
                prop_assert_eq!(busy, expected, "{:?}", view);
                prop_assert_eq!(view.waiting, total.saturating_sub(view.slots.len()) + others);
            }
        }
    }
}

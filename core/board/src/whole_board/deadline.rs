//! How long the board waits for a process.

use super::{Order, Round, Word};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The deadline of one process. While the board waits for an answer of the process, no task of others starts; so each wait
/// has a time limit.
///
/// The caller passes the present time, counted from any moment.
#[derive(Debug, Default)]
pub struct MemberDeadline {
    /// The step that the board waits for, and the time at which the wait began.
    awaited: Option<(Step, Duration)>,
    /// The first and the last round in which the process was told to leave.
    rounds: Option<RangeInclusive<Round>>,
}

/// What the board waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The process leaves the board, in this round.
    Leave(Round),
    /// The process loads the board and returns.
    Load,
    /// The process, whose load was given up, returns.
    Return,
}

/// How long a process may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// To leave the board, and to return from a load that was given up.
    pub leave: Duration,
    /// To load the board.
    pub load: Duration,
}

/// The process answers a request to leave that it was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it answers a request to leave the board that it was not given")]
pub struct UnknownRound;

impl MemberDeadline {
    /// The process was told this.
    pub fn ordered(&mut self, order: &Order, now: Duration) {
        self.awaited = match (order, self.awaited) {
            (Order::Leave(round), awaited) => {
                let first = self.rounds.as_ref().map_or(*round, |rounds| *rounds.start());
                self.rounds = Some(first..=*round);
                // A process that has not left yet gets no more time by a further request.
                let since = match awaited {
                    Some((Step::Leave(_), since)) => since,
                    _ => now,
                };
                Some((Step::Leave(*round), since))
            }
            (Order::Start(grant), awaited) if grant.load.is_empty() => awaited,
            (Order::Start(_), _) => Some((Step::Load, now)),
            (Order::Return(_), Some((Step::Load, _))) => Some((Step::Return, now)),
            (Order::Return(_), awaited) => awaited.filter(|(step, _)| *step == Step::Return),
        };
    }

    /// The process says this. A wait ends by the answer to it only.
    ///
    /// # Errors
    /// [`UnknownRound`]: no process that keeps to the protocol says this.
    pub fn said(&mut self, word: Word) -> Result<(), UnknownRound> {
        if let Word::IsOff(round) = word
            && !self.rounds.as_ref().is_some_and(|rounds| rounds.contains(&round))
        {
            return Err(UnknownRound);
        }
        self.awaited.take_if(|(step, _)| match (word, *step) {
            (Word::IsOff(round), Step::Leave(of)) => round == of,
            (Word::IsBack(_), step) => matches!(step, Step::Load | Step::Return),
            (Word::IsOff(_), Step::Load | Step::Return) => false,
        });
        Ok(())
    }

    /// The step that the process should have taken by now.
    #[must_use]
    pub fn overdue(&self, now: Duration, limits: TimeLimits) -> Option<Step> {
        let (step, since) = self.awaited?;
        let limit = match step {
            Step::Leave(_) | Step::Return => limits.leave,
            Step::Load => limits.load,
        };
        (now.saturating_sub(since) >= limit).then_some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Loaded, MemberId, Phase, Place, WholeBoard};
    use super::*;
    use crate::dispatch::{Grant, TaskId};
    use crate::slots::{SessionId, SlotIndex, SlotLoad};
    use fpga_core::bitstream::Digest;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LIMITS: TimeLimits = TimeLimits { leave: Duration::from_secs(60), load: Duration::from_secs(600) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn load(task: u64) -> Grant {
        let load = SlotLoad { slot: SlotIndex(0), bitstream: Digest::from_bytes([7; 32]) };
        Grant { session: SessionId(1), task: TaskId(task), slots: vec![load.slot], load: vec![load] }
    }

    #[test]
    fn a_deadline_to_leave_ends_by_the_word_of_its_own_round_alone() {
        let mut deadline = MemberDeadline::default();
        deadline.ordered(&Order::Leave(Round(6)), at(0));
        deadline.ordered(&Order::Return(Vec::new()), at(1));
        assert_eq!(deadline.overdue(at(1000), LIMITS), None, "it may use the board");
        deadline.ordered(&Order::Leave(Round(7)), at(1000));
        assert_eq!(deadline.said(Word::IsOff(Round(6))), Ok(()), "a late answer");
        assert_eq!(deadline.said(Word::IsBack(Loaded::No)), Ok(()), "a late answer");
        assert_eq!(deadline.overdue(at(1059), LIMITS), None);
        assert_eq!(deadline.overdue(at(1060), LIMITS), Some(Step::Leave(Round(7))));
        deadline.ordered(&Order::Leave(Round(8)), at(1059));
        assert_eq!(deadline.overdue(at(1060), LIMITS), Some(Step::Leave(Round(8))), "it has not left yet");
        assert_eq!(deadline.said(Word::IsOff(Round(8))), Ok(()));
        assert_eq!(deadline.overdue(at(5000), LIMITS), None);
    }

    #[test]
    fn a_round_that_a_process_was_not_given_is_a_breach_of_the_protocol() {
        let mut deadline = MemberDeadline::default();
        assert_eq!(deadline.said(Word::IsOff(Round(0))), Err(UnknownRound));
        deadline.ordered(&Order::Leave(Round(7)), at(0));
        for unknown in [0, 6, 8] {
            assert_eq!(deadline.said(Word::IsOff(Round(unknown))), Err(UnknownRound), "{unknown}");
        }
        assert_eq!(deadline.overdue(at(60), LIMITS), Some(Step::Leave(Round(7))));
    }

    #[test]
    fn a_load_has_a_deadline_until_its_process_is_back() {
        let mut deadline = MemberDeadline::default();
        deadline.ordered(&Order::Start(Grant { load: Vec::new(), ..load(1) }), at(0));
        assert_eq!(deadline.overdue(at(1000), LIMITS), None, "a task without a load");
        deadline.ordered(&Order::Start(load(2)), at(0));
        assert_eq!(deadline.overdue(at(599), LIMITS), None);
        assert_eq!(deadline.overdue(at(600), LIMITS), Some(Step::Load));
        deadline.ordered(&Order::Return(Vec::new()), at(100));
        deadline.ordered(&Order::Return(Vec::new()), at(110));
        assert_eq!(deadline.overdue(at(159), LIMITS), None);
        assert_eq!(deadline.overdue(at(160), LIMITS), Some(Step::Return), "its load was given up");
        assert_eq!(deadline.said(Word::IsBack(Loaded::No)), Ok(()));
        assert_eq!(deadline.overdue(at(5000), LIMITS), None);
    }

    /// A board whose processes say anything.
    #[derive(Debug, Default)]
    struct World {
        board: WholeBoard,
        deadlines: BTreeMap<MemberId, MemberDeadline>,
        joined: u64,
        tasks: u64,
    }

    #[derive(Debug, Clone)]
    enum Event {
        Join,
        Load(usize),
        Ends(u64),
        Dies(usize),
        Says(usize, Word),
    }

    fn event() -> impl Strategy<Value = Event> {
        let word = prop_oneof![
            4 => (0..12_u64).prop_map(|round| Word::IsOff(Round(round))),
            1 => Just(Word::IsBack(Loaded::Yes)),
        ];
        prop_oneof![
            2 => Just(Event::Join),
            3 => (0..4_usize).prop_map(Event::Load),
            1 => (1..20_u64).prop_map(Event::Ends),
            1 => (0..4_usize).prop_map(Event::Dies),
            12 => (0..4_usize, word).prop_map(|(member, word)| Event::Says(member, word)),
        ]
    }

    impl World {
        fn tell(&mut self, orders: Vec<(MemberId, Order)>) {
            for (member, order) in orders {
                self.deadlines.entry(member).or_default().ordered(&order, Duration::ZERO);
            }
        }

        fn member(&self, index: usize) -> Option<MemberId> {
            self.board.members.keys().nth(index % self.board.members.len().max(1)).copied()
        }

        fn dies(&mut self, member: MemberId) {
            self.deadlines.remove(&member);
            let orders = self.board.left(member);
            self.tell(orders);
        }

        fn happens(&mut self, event: &Event) {
            let orders = match *event {
                Event::Join => {
                    self.joined += 1;
                    self.board.joined(MemberId(self.joined))
                }
                Event::Load(index) => {
                    let Some(member) = self.member(index) else { return };
                    self.tasks += 1;
                    self.board.granted(member, load(self.tasks))
                }
                Event::Ends(task) => self.board.ended(TaskId(task)).1,
                Event::Dies(index) => {
                    let Some(member) = self.member(index) else { return };
                    return self.dies(member);
                }
                Event::Says(index, word) => {
                    let Some(member) = self.member(index) else { return };
                    match (self.deadlines.entry(member).or_default().said(word), word) {
                        (Err(UnknownRound), _) => return self.dies(member),
                        (Ok(()), Word::IsOff(round)) => self.board.is_off(member, round),
                        (Ok(()), Word::IsBack(loaded)) => self.board.is_back(member, loaded),
                    }
                }
            };
            self.tell(orders);
        }

        fn overdue(&self) -> Vec<MemberId> {
            let none = TimeLimits { leave: Duration::ZERO, load: Duration::ZERO };
            let is_overdue = |(_, deadline): &(&MemberId, &MemberDeadline)| {
                deadline.overdue(Duration::MAX, none).is_some()
            };
            self.deadlines.iter().filter(is_overdue).map(|(member, _)| *member).collect()
        }

        /// The processes for which the board waits.
        fn awaited(&self) -> Vec<MemberId> {
            let loader = match &self.board.phase {
                Phase::Loading { member, .. } => Some(*member),
                Phase::Open | Phase::Closing(_) => None,
            };
            let is_awaited =
                |(member, place): &(&MemberId, &Place)| **place == Place::Leaves || loader == Some(**member);
            self.board.members.iter().filter(is_awaited).map(|(member, _)| *member).collect()
        }
    }

    proptest! {
        #[test]
        fn those_for_whom_the_board_waits_have_a_deadline_whatever_processes_say(
            events in prop::collection::vec(event(), 0..100)
        ) {
            let mut world = World::default();
            for event in &events {
                world.happens(event);
                prop_assert_eq!(world.overdue(), world.awaited(), "{:?}", world);
            }
            while let Some(late) = world.overdue().first() {
                world.dies(*late);
            }
            prop_assert!(matches!(world.board.phase, Phase::Open), "{:?}", world);
        }
    }
}

//! What it saves to take a function off its board where the scheduler, and not the planner, chooses the next one: the
//! mean over the boards that the function may go to.

use fpga_board::reuse::{Pressure, ReuseProfile};
use std::collections::BTreeSet;

/// Number of boards that are tried, of those with a function that may go, those with the most cold starts first.
const TRIED_BOARDS: usize = 8;
/// Number of functions of a board that are tried, the most frequently used first.
const TRIED_FUNCTIONS: usize = 16;

/// A board and what uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct UsedBoard {
    /// Number of slots.
    pub slots: u32,
    /// The effect of each bitstream on the slots.
    pub uses: Vec<ReuseProfile>,
}

/// A function that may go to another board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movable {
    /// Number of the function, chosen by the caller.
    pub function: usize,
    /// Index of the function's board.
    pub board: usize,
    /// Indexes of the uses of the board that go with the function: it alone causes them.
    pub uses: Vec<usize>,
}

/// What it saves to take a function off its board, in cold starts per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// Number of the function.
    pub function: usize,
    /// Cold starts of the function's board as it is.
    pub cold: f32,
    /// The mean over the boards that the function may go to.
    pub expected: f32,
    /// Index of the board where most is saved.
    pub best: usize,
    /// What is saved there.
    pub at_best: f32,
}

/// For each board at most one function: the one whose move saves most, if that is at least `least` cold starts per
/// second. The greatest gain is first. `may_go` tells whether a function may go to the board with this index.
#[must_use]
pub fn gains(
    boards: &[UsedBoard],
    movable: &[Movable],
    may_go: impl Fn(&Movable, usize) -> bool,
    least: f32,
) -> Vec<Gain> {
    let pressures: Vec<Pressure> = boards.iter().map(pressure).collect();
    let cold: Vec<f32> = pressures.iter().map(Pressure::cold).collect();
    let has_place = |movable: &&Movable| {
        cold[movable.board] >= least && (0..boards.len()).any(|to| to != movable.board && may_go(movable, to))
    };
    let with_place: BTreeSet<usize> = movable.iter().filter(has_place).map(|it| it.board).collect();
    let mut worst: Vec<usize> = with_place.into_iter().collect();
    worst.sort_by(|a, b| cold[*b].total_cmp(&cold[*a]).then(a.cmp(b)));
    let best_of = |board: &usize| {
        let mut here: Vec<(f32, &Movable)> = movable
            .iter()
            .filter(|movable| movable.board == *board)
            .map(|movable| (profiles(boards, movable).map(|profile| profile.cold[0]).sum(), movable))
            .collect();
        // Without a slot to stay in, every use of a function is a cold start.
        here.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let gains = here.into_iter().take(TRIED_FUNCTIONS);
        let gains = gains.filter_map(|(_, movable)| {
            let others = (0..boards.len()).filter(|to| *to != *board && may_go(movable, *to));
            gain(boards, &pressures, &cold, movable, others)
        });
        gains.max_by(|a, b| a.expected.total_cmp(&b.expected)).filter(|gain| gain.expected >= least)
    };
    let mut gains: Vec<Gain> = worst.iter().take(TRIED_BOARDS).filter_map(best_of).collect();
    gains.sort_by(|a, b| b.expected.total_cmp(&a.expected));
    gains
}

fn gain(
    boards: &[UsedBoard],
    pressures: &[Pressure],
    cold: &[f32],
    movable: &Movable,
    others: impl Iterator<Item = usize>,
) -> Option<Gain> {
    let from = movable.board;
    let mut without = pressures.get(from)?.clone();
    profiles(boards, movable).for_each(|profile| without.remove(profile));
    let saved = cold[from] - without.cold();
    let gains = others.map(|to| {
        let mut with = pressures[to].clone();
        profiles(boards, movable).for_each(|profile| with.add(profile));
        (to, saved - (with.cold() - cold[to]))
    });
    let gains: Vec<(usize, f32)> = gains.collect();
    let (best, at_best) = gains.iter().copied().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let expected = gains.iter().map(|(_, gain)| gain).sum::<f32>() / gains.len() as f32;
    Some(Gain { function: movable.function, cold: cold[from], expected, best, at_best })
}

fn pressure(board: &UsedBoard) -> Pressure {
    let mut pressure = Pressure::new(board.slots);
    board.uses.iter().for_each(|profile| pressure.add(profile));
    pressure
}

fn profiles<'b>(boards: &'b [UsedBoard], movable: &'b Movable) -> impl Iterator<Item = &'b ReuseProfile> {
    movable.uses.iter().filter_map(|use_| boards.get(movable.board)?.uses.get(*use_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::reuse::Gaps;
    use fpga_core::units::{Millis, MonotonicTime};

    fn used(period: u64) -> ReuseProfile {
        let mut gaps = Gaps::default();
        (0..200).for_each(|use_| gaps.used(MonotonicTime(use_ * period)));
        gaps.profile(gaps.last().unwrap() + Millis(1))
    }

    /// Boards with a function for each period.
    fn cluster(boards: &[(u32, &[u64])]) -> (Vec<UsedBoard>, Vec<Movable>) {
        let used_boards = boards.iter().map(|(slots, periods)| UsedBoard {
            slots: *slots,
            uses: periods.iter().map(|period| used(*period)).collect(),
        });
        let movable = boards.iter().enumerate().flat_map(|(board, (_, periods))| {
            (0..periods.len()).map(move |index| Movable {
                function: board * 10 + index,
                board,
                uses: vec![index],
            })
        });
        (used_boards.collect(), movable.collect())
    }

    #[test]
    fn a_function_goes_from_a_crowded_board_where_there_is_room() {
        let (boards, movable) = cluster(&[(2, &[1_000, 1_000, 1_000]), (2, &[1_000])]);
        let gains = gains(&boards, &movable, |_, _| true, 0.1);
        assert_eq!((gains.len(), gains[0].function / 10, gains[0].best), (1, 0, 1));
        assert!(gains[0].expected > 0.5 && gains[0].expected <= gains[0].cold, "{gains:?}");
        assert!((gains[0].expected - gains[0].at_best).abs() < 1e-6, "there is one board to go to");
    }

    #[test]
    fn nothing_is_worth_a_move_where_there_is_room_or_every_board_is_crowded() {
        let room: &[(u32, &[u64])] = &[(2, &[1_000, 1_000]), (2, &[])];
        let crowded: &[(u32, &[u64])] = &[(1, &[1_000, 1_000, 1_000]), (1, &[1_000, 1_000, 1_000])];
        for boards in [room, crowded] {
            let (boards, movable) = cluster(boards);
            assert_eq!(gains(&boards, &movable, |_, _| true, 0.1), []);
        }
    }

    #[test]
    fn boards_whose_functions_may_go_nowhere_keep_no_other_one_from_being_tried() {
        let mut all: Vec<(u32, &[u64])> = vec![(1, &[900, 900, 900]); TRIED_BOARDS];
        all.extend([(2, [1_000; 3].as_slice()), (2, &[])]);
        let (boards, movable) = cluster(&all);
        let may_go = |movable: &Movable, _: usize| movable.board == TRIED_BOARDS;
        let gains = gains(&boards, &movable, may_go, 0.1);
        assert_eq!((gains.len(), gains[0].function / 10, gains[0].best), (1, TRIED_BOARDS, TRIED_BOARDS + 1));
    }

    #[test]
    fn the_mean_over_the_boards_decides_since_the_scheduler_chooses() {
        let crowd = [1_000_u64; 4];
        let boards = [(2, &crowd[..3]), (2, &[]), (2, &crowd), (2, &crowd)];
        let (boards, mut movable) = cluster(&boards);
        movable.retain(|movable| movable.board == 0);
        let found = |may_go: &dyn Fn(usize) -> bool| {
            gains(&boards, &movable, |_, to| may_go(to), 0.01).first().copied()
        };
        let (all, one) = (found(&|_| true).unwrap(), found(&|to| to == 1).unwrap());
        assert!(one.best == 1 && (one.expected - one.at_best).abs() < 1e-6, "{one:?}");
        // On the crowded boards each use of the function is a cold start more: one of the three that are saved.
        let mean = one.expected * (1.0 + 2.0 / 3.0 + 2.0 / 3.0) / 3.0;
        assert!((all.expected - mean).abs() < 1e-3 && all.at_best == one.at_best, "{all:?} {one:?}");
        assert_eq!(found(&|to| to == 0), None, "there is no other board");
    }
}

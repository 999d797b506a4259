//! Groups, jobs, and bundles that begin, are recalled, and end in any order of messages, with the protocol's own machines at all sides.

mod parts;
mod world;

use proptest::prelude::*;
use world::World;

/// What happens next. Numbers choose among what is possible, and a move that is not possible changes nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Move {
    /// A group begins.
    Open(u8),
    /// A group's actions have all ended: the group gives its jobs up.
    End(u8),
    /// A job by itself begins.
    Run,
    /// A bundle of so many jobs begins.
    RunMany(u32),
    /// A job by itself, or a bundle, is given up.
    EndRun,
    /// A message arrives.
    Arrives(usize),
    /// A task of a board ends.
    TaskEnds(usize),
    /// A job with a slot has one more step.
    Submit(usize),
    /// So many messages arrive, in turn.
    Settle(u8),
    /// Time passes.
    Pass(u64),
    /// A connection to the broker is cut, and another one made.
    CutManager,
    CutClient,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (0_u8..3).prop_map(Move::Open),
        1 => (0_u8..3).prop_map(Move::End),
        1 => Just(Move::Run),
        1 => (2_u32..=6).prop_map(Move::RunMany),
        2 => Just(Move::EndRun),
        20 => (0_usize..64).prop_map(Move::Arrives),
        8 => (0_usize..64).prop_map(Move::TaskEnds),
        4 => (0_usize..64).prop_map(Move::Submit),
        2 => (0_u8..60).prop_map(Move::Settle),
        3 => (0_u64..150).prop_map(Move::Pass),
        1 => (0_u64..3000).prop_map(Move::Pass),
        1 => prop_oneof![Just(Move::CutManager), Just(Move::CutClient)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn a_pool_whose_clients_have_ended_has_no_job_and_all_slots(
        moves in prop::collection::vec(any_move(), 1..250),
    ) {
        let mut world = World::new();
        for step in moves {
            world.apply(step);
            world.bench.state.policy.check();
        }
        world.settle();
        world.check_at_rest();
        world.end();
        world.settle();
        world.check_ended();
    }
}

//! The state from which a search begins.

use super::moves::Move;
use super::world::{Clients, Setup, World};
use crate::broker::Timer;

impl World {
    /// The first broker is active, the manager is registered, and all jobs wait if they are not away.
    #[must_use]
    pub fn started(setup: &Setup) -> Self {
        let mut world = Self::cold(setup);
        loop {
            let mut moves = world.prompt_moves();
            if setup.clients_are == Clients::Away {
                moves.retain(|what| !matches!(what, Move::ClientConnects(..)));
            }
            let settled = Move::BrokerTimer(0, Timer::Settled);
            let next = moves.first().copied().or_else(|| {
                let is_settling = world.moves().contains(&settled);
                is_settling.then_some(settled)
            });
            match next {
                Some(next) => world.apply(next),
                None => return world,
            }
        }
    }

    /// The states of a run without faults and without delay, from [`Self::started`] to the end of all jobs.
    pub(super) fn uneventful(setup: &Setup) -> Vec<(Move, Self)> {
        let mut world = Self::started(setup);
        let mut run = Vec::new();
        loop {
            let mut moves = world.prompt_moves();
            world.policy_moves(&mut moves);
            moves.retain(|what| !matches!(what, Move::Recalls(..)));
            moves.extend(world.tasks().map(|(lease, step)| Move::StepEnds(lease, step)));
            let Some(next) = moves.first().copied().filter(|_| !world.is_done()) else { return run };
            world.apply(next);
            run.push((next, world.clone()));
        }
    }
}

//! Moves units whose demand has changed (S-11): periodically, where `fpga-core` predicts fewer cold starts.
//! Distributes replicas by demand if there is a budget for them.

use super::collector::clock;
use super::options::Placement;
use crate::time::{Micros, SimTime};
use fpga_board::reuse::Gaps;
use fpga_cluster::rebalance::{Move, Placed, plan};
use fpga_cluster::replicas::apportion;

/// Plans moves and numbers of replicas.
#[derive(Debug)]
pub struct Mover {
    interval: Micros,
    most: usize,
    gain: f32,
    /// Mean number of replicas per unit.
    budget: f64,
    next: SimTime,
    units: Vec<Known>,
    moves: u64,
}

#[derive(Debug, Clone, Default)]
struct Known {
    gaps: Gaps,
    bitstream: u32,
    /// Time on boards in microseconds; halved at each look.
    demand: u64,
}

impl Mover {
    /// The mover of a scenario.
    #[must_use]
    pub fn new(placement: &Placement, begin: SimTime) -> Self {
        let interval = Micros::from_secs(placement.move_minutes * 60.0);
        #[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more digits")]
        let gain = (placement.move_gain / 3600.0) as f32;
        Self {
            interval,
            most: placement.moves as usize,
            gain,
            budget: placement.replica_budget,
            next: if interval == Micros::ZERO { SimTime::END } else { begin + interval },
            units: Vec::new(),
            moves: 0,
        }
    }

    /// Records that a unit uses the board for `board`.
    pub fn used(&mut self, unit: u32, bitstream: u32, board: Micros, now: SimTime) {
        if self.next == SimTime::END {
            return;
        }
        let index = unit as usize;
        if self.units.len() <= index {
            self.units.resize(index + 1, Known::default());
        }
        let known = &mut self.units[index];
        known.gaps.used(clock(now));
        known.bitstream = bitstream;
        known.demand = known.demand.saturating_add(board.0);
    }

    /// Whether the next look at the units is due.
    #[must_use]
    pub fn is_due(&self, now: SimTime) -> bool {
        now >= self.next
    }

    /// Number of moves so far.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The bitstream and the number of replicas of each unit, of which there are at least `units`; empty without a
    /// budget.
    pub fn replicas(&mut self, units: usize, nodes: usize) -> Vec<(u32, u32)> {
        if self.budget <= 0.0 {
            return Vec::new();
        }
        self.units.resize(units.max(self.units.len()), Known::default());
        let demand: Vec<u64> = self.units.iter().map(|known| known.demand).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let budget = (self.budget * units as f64) as usize;
        let replicas = apportion(&demand, budget, u32::try_from(nodes).unwrap_or(u32::MAX));
        self.units.iter_mut().for_each(|known| known.demand /= 2);
        self.units.iter().map(|known| known.bitstream).zip(replicas).collect()
    }

    /// The moves that are due: unit, its bitstream, and the new node.
    pub fn plan(&mut self, placed: &[(u32, u32)], slots: &[u32], now: SimTime) -> Vec<(u32, u32, u32)> {
        self.next = now + self.interval;
        let at = clock(now);
        let functions: Vec<Placed> = placed
            .iter()
            .filter_map(|(unit, node)| {
                let known = self.units.get(*unit as usize)?;
                Some(Placed {
                    function: *unit as usize,
                    node: *node as usize,
                    profile: known.gaps.profile(at),
                })
            })
            .collect();
        let moves = plan(&functions, slots, self.most, self.gain);
        self.moves += moves.len() as u64;
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        moves
            .into_iter()
            .map(|Move { function, to, .. }| {
                let bitstream = self.units.get(function).map_or(0, |known| known.bitstream);
                (number(function), bitstream, number(to))
            })
            .collect()
    }
}

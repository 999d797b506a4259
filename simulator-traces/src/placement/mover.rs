//! Moves units whose demand changed (S-11): from time to time, where `fpga-core` reckons that cold starts are saved.

use super::collector::clock;
use super::options::Placement;
use crate::time::Micros;
use fpga_core::rebalance::{Move, Placed, plan};
use fpga_core::reuse::Gaps;

/// Who decides on moves, and what it knows of units.
#[derive(Debug)]
pub struct Mover {
    interval: Micros,
    most: usize,
    gain: f32,
    next: Micros,
    units: Vec<Known>,
    moves: u64,
}

#[derive(Debug, Clone, Default)]
struct Known {
    gaps: Gaps,
    bitstream: u32,
}

impl Mover {
    /// That of a scenario.
    #[must_use]
    pub fn new(placement: &Placement, begin: Micros) -> Self {
        let interval = Micros::from_secs(placement.move_minutes * 60.0);
        #[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more digits")]
        let gain = (placement.move_gain / 3600.0) as f32;
        Self {
            interval,
            most: placement.moves as usize,
            gain,
            next: if interval == Micros::ZERO { Micros::MAX } else { begin + interval },
            units: Vec::new(),
            moves: 0,
        }
    }

    /// A unit used the board.
    pub fn used(&mut self, unit: u32, bitstream: u32, now: Micros) {
        if self.next == Micros::MAX {
            return;
        }
        let index = unit as usize;
        if self.units.len() <= index {
            self.units.resize(index + 1, Known::default());
        }
        self.units[index].gaps.used(clock(now));
        self.units[index].bitstream = bitstream;
    }

    /// Whether it is time to look.
    #[must_use]
    pub fn is_due(&self, now: Micros) -> bool {
        now >= self.next
    }

    /// How many moves there were.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Moves: unit, its bitstream, where to.
    pub fn plan(&mut self, placed: &[(u32, u32)], slots: &[u32], now: Micros) -> Vec<(u32, u32, u32)> {
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

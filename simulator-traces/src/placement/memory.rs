//! The past or future uses of bitstreams, by which boards evict and the router estimates the cost of loading.

use super::collector::clock;
use super::lookahead::Lookahead;
use super::options::{Eviction, Remembers, Scenario, Slots};
use crate::error::ScenarioError;
use crate::time::{Micros, SimTime};
use fpga_board::reuse::{Foresight, Horizon};
use std::num::NonZeroU32;

/// The uses of bitstreams on all boards.
#[derive(Debug)]
pub struct Memory {
    eviction: Eviction,
    remembers: Remembers,
    /// One entry per board, or one for all boards.
    foresights: Vec<Foresight<u32>>,
    lookahead: Lookahead,
    /// For each bitstream, the number of slots on all boards that hold it.
    copies: Vec<u32>,
    random: u64,
}

impl Memory {
    /// The memory of a scenario with `boards` boards.
    ///
    /// # Errors
    /// [`ScenarioError`] if the trace can't be read in advance.
    pub fn new(scenario: &Scenario, boards: usize) -> Result<Self, ScenarioError> {
        let Slots { eviction, remembers, horizon_s, .. } = scenario.slots;
        let horizon = match horizon_s > 0.0 {
            true => Horizon::Fixed(Micros::from_secs(horizon_s).millis()),
            false => Horizon::default(),
        };
        let foresights = match remembers {
            Remembers::Board => boards,
            Remembers::Cluster => 1,
        };
        let lookahead = match eviction {
            Eviction::Clairvoyant => Lookahead::new(scenario)?,
            _ => Lookahead::default(),
        };
        Ok(Self {
            eviction,
            remembers,
            foresights: vec![Foresight::new(horizon); foresights],
            lookahead,
            copies: Vec::new(),
            random: scenario.seed,
        })
    }

    fn place(&self, board: u32) -> usize {
        match self.remembers {
            Remembers::Board => board as usize,
            Remembers::Cluster => 0,
        }
    }

    /// Records that a request for a bitstream was sent to a board.
    pub fn used(&mut self, board: u32, bitstream: u32, now: SimTime) {
        match self.eviction {
            Eviction::Predicted => {
                let place = self.place(board);
                if let Some(foresight) = self.foresights.get_mut(place) {
                    foresight.used(bitstream, clock(now));
                }
            }
            Eviction::Clairvoyant => self.lookahead.used(bitstream),
            Eviction::Random => {
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            Eviction::Lru => {}
        }
    }

    /// Records that a bitstream was loaded and another one possibly evicted for it.
    pub fn loaded(&mut self, board: u32, loaded: u32, evicted: Option<u32>, now: SimTime) {
        let most = loaded.max(evicted.unwrap_or(0)) as usize;
        if self.copies.len() <= most {
            self.copies.resize(most + 1, 0);
        }
        self.copies[loaded as usize] += 1;
        if let Some(evicted) = evicted {
            let copies = &mut self.copies[evicted as usize];
            *copies = copies.saturating_sub(1);
            let place = self.place(board);
            if let Some(foresight) = self.foresights.get_mut(place) {
                foresight.evicted(evicted, clock(now));
            }
        }
    }

    /// The value of keeping a bitstream on a board that has `on_board` copies of it.
    #[must_use]
    pub fn worth(&self, board: u32, bitstream: u32, on_board: NonZeroU32, now: SimTime) -> u64 {
        let on_all =
            || self.copies.get(bitstream as usize).copied().and_then(NonZeroU32::new).unwrap_or(on_board);
        match self.eviction {
            Eviction::Lru => 0,
            Eviction::Predicted => {
                let copies = match self.remembers {
                    Remembers::Board => on_board,
                    Remembers::Cluster => on_all(),
                };
                let foresight = self.foresights.get(self.place(board));
                foresight.map_or(0, |foresight| u64::from(foresight.worth(bitstream, copies, clock(now))))
            }
            Eviction::Clairvoyant => {
                // The n-th copy of a bitstream is needed only at its n-th next use.
                u64::from(u32::MAX - self.lookahead.next(bitstream, on_all().get() as usize - 1))
            }
            Eviction::Random => {
                let mixed = (self.random ^ u64::from(bitstream)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                mixed ^ mixed >> 29
            }
        }
    }
}

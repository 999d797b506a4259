//! The last picks of a function, for people.

use super::{Choice, Refusal};
use fpga_core::units::MonotonicTime;
use std::collections::VecDeque;

/// Most picks of a function that are remembered.
pub const MOST_PICKS: usize = 32;

/// What came of a request.
#[derive(Debug, Clone)]
pub struct Pick {
    /// Time of the pick.
    pub at: MonotonicTime,
    /// Number of replicas among which was chosen.
    pub candidates: usize,
    /// The choice, or why there is none.
    pub outcome: Result<Choice, Refusal>,
}

/// The last picks of a function.
#[derive(Debug, Default)]
pub struct Picks(VecDeque<Pick>);

impl Picks {
    /// Adds a pick, and forgets the oldest where there are too many.
    pub fn push(&mut self, pick: Pick) {
        if self.0.len() >= MOST_PICKS {
            self.0.pop_front();
        }
        self.0.push_back(pick);
    }

    /// The picks, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = &Pick> {
        self.0.iter().rev()
    }
}

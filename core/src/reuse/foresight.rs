//! Which resident bitstream is worth most, by what was seen of all of them so far: what a board asks before it evicts.
//!
//! It is bounded: of bitstreams beyond [`MOST_KNOWN`] the one unused for the longest is forgotten. It knows neither slots
//! nor which of them is free.

use super::Gaps;
use crate::units::{Millis, MonotonicTime};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// As many bitstreams are remembered.
pub const MOST_KNOWN: usize = 1024;

/// What is remembered of the bitstreams of one board, or of those of a cluster; `B` names a bitstream.
#[derive(Debug, Clone)]
pub struct Foresight<B> {
    gaps: BTreeMap<B, Gaps>,
    horizon: Horizon,
}

/// How far ahead evictions look: twice as long as a bitstream stays unused before it goes. That follows from the load and
/// the number of slots, and is learnt from the evictions themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// Learnt: for so long bitstreams were unused that had to go.
    Learnt(Millis),
    /// Given.
    Fixed(Millis),
}

impl Horizon {
    /// How far.
    #[must_use]
    pub fn get(self) -> Millis {
        match self {
            Self::Learnt(unused) => unused + unused,
            Self::Fixed(horizon) => horizon,
        }
    }

    /// Something was evicted that had been unused for so long.
    pub fn evicted(&mut self, unused: Millis) {
        if let Self::Learnt(mean) = self {
            // A moving mean over some thirty evictions; never nothing at all.
            *mean = Millis((mean.0.saturating_mul(31).saturating_add(unused.0)) / 32).max(Millis(1_000));
        }
    }
}

impl Default for Horizon {
    fn default() -> Self {
        Self::Learnt(Millis::from_secs(120))
    }
}

impl<B: Ord + Copy> Foresight<B> {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(horizon: Horizon) -> Self {
        Self { gaps: BTreeMap::new(), horizon }
    }

    /// A bitstream is wanted now.
    pub fn used(&mut self, bitstream: B, now: MonotonicTime) {
        if let Some(gaps) = self.gaps.get_mut(&bitstream) {
            gaps.used(now);
            return;
        }
        if self.gaps.len() >= MOST_KNOWN {
            let oldest =
                self.gaps.iter().min_by_key(|(_, gaps)| gaps.last()).map(|(bitstream, _)| *bitstream);
            if let Some(oldest) = oldest {
                self.gaps.remove(&oldest);
            }
        }
        self.gaps.entry(bitstream).or_default().used(now);
    }

    /// A bitstream had to go.
    pub fn evicted(&mut self, bitstream: B, now: MonotonicTime) {
        if let Some(last) = self.gaps.get(&bitstream).and_then(Gaps::last) {
            self.horizon.evicted(now - last);
        }
    }

    /// What it is worth to keep one of so many copies of a bitstream: how likely it is wanted soon, in millionths, and
    /// divided by them, since another copy helps only when both are wanted at once. Nothing for one that was never seen.
    #[must_use]
    pub fn worth(&self, bitstream: B, copies: NonZeroU32, now: MonotonicTime) -> u32 {
        let chance = self.gaps.get(&bitstream).map_or(0, |gaps| gaps.chance_within(self.horizon.get(), now));
        chance / copies
    }

    /// How many bitstreams are remembered.
    #[must_use]
    pub fn known(&self) -> usize {
        self.gaps.len()
    }
}

impl<B: Ord + Copy> Default for Foresight<B> {
    fn default() -> Self {
        Self::new(Horizon::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    #[test]
    fn what_comes_often_is_worth_more_than_what_was_used_last() {
        let mut seen = Foresight::default();
        (0..100).for_each(|turn| seen.used('o', MonotonicTime(turn * 10_000)));
        (0..4).for_each(|turn| seen.used('r', MonotonicTime(turn * 331_000)));
        let now = MonotonicTime(994_000);
        seen.used('r', now);
        let (often, last) = (seen.worth('o', ONE, now), seen.worth('r', ONE, now));
        assert!(often > last, "{often} {last}");
        assert_eq!(seen.worth('?', ONE, now), 0);
    }

    #[test]
    fn a_further_copy_is_worth_less_than_one_of_something_else_that_comes() {
        let mut seen = Foresight::default();
        (0..100).for_each(|turn| seen.used('o', MonotonicTime(turn * 10_000)));
        (0..33).for_each(|turn| seen.used('r', MonotonicTime(turn * 30_000)));
        let now = MonotonicTime(991_000);
        let four = NonZeroU32::new(4).unwrap();
        assert!(seen.worth('o', ONE, now) > seen.worth('r', ONE, now));
        assert!(seen.worth('o', four, now) < seen.worth('r', ONE, now));
    }

    #[test]
    fn the_horizon_follows_what_evicted_bitstreams_were_unused() {
        let mut seen = Foresight::default();
        let mut fixed = Foresight::new(Horizon::Fixed(Millis(5_000)));
        for turn in 0..400 {
            let now = MonotonicTime(turn * 600_000);
            for seen in [&mut seen, &mut fixed] {
                seen.used('a', now);
                seen.evicted('a', now + Millis(60_000));
            }
        }
        assert!((118_000..122_000).contains(&seen.horizon.get().0), "{:?}", seen.horizon);
        assert_eq!(fixed.horizon.get(), Millis(5_000));
        seen.evicted('?', MonotonicTime(900_000_000));
        assert!(
            (118_000..122_000).contains(&seen.horizon.get().0),
            "nothing is learnt of what was never seen"
        );
    }

    #[test]
    fn a_stranger_for_each_moment_takes_no_more_memory_and_costs_only_the_oldest() {
        let mut seen = Foresight::default();
        seen.used(0_u64, MonotonicTime::START);
        for stranger in 1..=3 * MOST_KNOWN as u64 {
            seen.used(stranger, MonotonicTime(stranger));
            seen.used(0, MonotonicTime(stranger));
        }
        assert_eq!(seen.known(), MOST_KNOWN);
        assert!(seen.worth(0, ONE, MonotonicTime(3 * MOST_KNOWN as u64)) > 900_000);
    }
}

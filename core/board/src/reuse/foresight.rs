//! The value of keeping each resident bitstream, by its past uses: a board evicts the least valuable one.
//!
//! Memory is bounded: beyond [`MOST_KNOWN`] bitstreams the one unused for the longest time is forgotten. The module
//! does not know which slots are free.

use super::Gaps;
use fpga_core::units::{Millis, MonotonicTime};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Maximum number of bitstreams that are remembered.
pub const MOST_KNOWN: usize = 1024;

/// The past uses of the bitstreams of one board or of a cluster; `B` identifies a bitstream.
#[derive(Debug, Clone)]
pub struct Foresight<B> {
    gaps: BTreeMap<B, Gaps>,
    horizon: Horizon,
}

/// How far ahead an eviction looks: twice as long as bitstreams stay unused before they are evicted. That time depends
/// on the load and the number of slots, and is learnt from the evictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// Learnt: moving mean of the time for which evicted bitstreams had been unused.
    Learnt(Millis),
    /// Fixed horizon.
    Fixed(Millis),
}

impl Horizon {
    /// The horizon.
    #[must_use]
    pub fn get(self) -> Millis {
        match self {
            Self::Learnt(unused) => unused + unused,
            Self::Fixed(horizon) => horizon,
        }
    }

    /// Records the eviction of a bitstream that had been unused for `unused`.
    pub fn evicted(&mut self, unused: Millis) {
        if let Self::Learnt(mean) = self {
            // A moving mean over about thirty evictions, at least one second.
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
    /// An empty memory.
    #[must_use]
    pub fn new(horizon: Horizon) -> Self {
        Self { gaps: BTreeMap::new(), horizon }
    }

    /// Records a use of `bitstream`.
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

    /// Records the eviction of `bitstream`.
    pub fn evicted(&mut self, bitstream: B, now: MonotonicTime) {
        if let Some(last) = self.gaps.get(&bitstream).and_then(Gaps::last) {
            self.horizon.evicted(now - last);
        }
    }

    /// The value of keeping one of `copies` copies of a bitstream: the probability of a use within the horizon, in
    /// millionths, divided by the number of copies, since a further copy helps only if several are used at once. 0 for
    /// an unknown bitstream.
    #[must_use]
    pub fn worth(&self, bitstream: B, copies: NonZeroU32, now: MonotonicTime) -> u32 {
        let chance = self.gaps.get(&bitstream).map_or(0, |gaps| gaps.chance_within(self.horizon.get(), now));
        chance / copies
    }

    /// Number of bitstreams that are remembered.
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
    fn a_frequently_used_bitstream_is_worth_more_than_the_last_used_one() {
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
    fn the_horizon_is_learnt_from_how_long_evicted_bitstreams_were_unused() {
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
    fn a_flood_of_new_bitstreams_is_bounded_and_forgets_only_the_longest_unused() {
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

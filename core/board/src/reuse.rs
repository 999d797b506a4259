//! Prediction of a bitstream's next use from the gaps between its uses so far (S-11). The prediction tells which
//! bitstream to evict, and how many cold starts the functions of a node cause.
//!
//! Gaps are counted in bins, two per factor of two. No distribution is assumed, so timers, bursts and rare uses are
//! told apart. Old gaps fade. The module knows neither slots nor nodes.

mod foresight;
mod profile;
pub mod published;

pub use foresight::{Foresight, Horizon, MOST_KNOWN};
pub use profile::{Pressure, ReuseProfile};

use fpga_core::units::{Millis, MonotonicTime};

/// Number of bins; they cover gaps from one millisecond to seven weeks.
pub const BINS: usize = 64;
/// Count of one gap. It is above 1 so that a rare gap survives a few halvings.
const ONE: u32 = 16;
/// Total count at which all counts are halved, so that old gaps fade.
const FADE_AT: u32 = 512 * ONE;
/// Count of the present, unfinished gap: that of a finished one.
const OPEN: f64 = 16.0;

/// The gaps between the uses of one bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    counts: [u32; BINS],
    total: u32,
    last: Option<MonotonicTime>,
}

/// The shortest gap of bin number `bin`.
#[must_use]
pub fn edge(bin: usize) -> Millis {
    let octave = 1_u64 << (bin / 2).min(62);
    // Odd bins begin at √2 times the even ones.
    let edge = if bin.is_multiple_of(2) { octave } else { octave * 92_682 / 65_536 };
    Millis(edge - 1)
}

fn bin_of(gap: Millis) -> usize {
    let from_one = gap.0.saturating_add(1);
    let octave = 63 - from_one.leading_zeros() as usize;
    let even = (octave * 2).min(BINS - 2);
    if gap >= edge(even + 1) { even + 1 } else { even }
}

/// The representative gap of a bin, in milliseconds.
fn middle(bin: usize) -> f64 {
    (edge(bin).0 + edge(bin + 1).0) as f64 / 2.0
}

impl Default for Gaps {
    fn default() -> Self {
        Self { counts: [0; BINS], total: 0, last: None }
    }
}

impl Gaps {
    /// Records a use of the bitstream.
    pub fn used(&mut self, now: MonotonicTime) {
        if let Some(last) = self.last.replace(now) {
            self.counts[bin_of(now - last)] += ONE;
            self.total += ONE;
            if self.total >= FADE_AT {
                self.counts.iter_mut().for_each(|count| *count /= 2);
                self.total = self.counts.iter().sum();
            }
        }
    }

    /// Time of the last use.
    #[must_use]
    pub fn last(&self) -> Option<MonotonicTime> {
        self.last
    }

    /// Probability of a use within `horizon` from now, in millionths.
    ///
    /// It is the share of those gaps that ended within the horizon among the gaps that lasted as long as the present
    /// one. One further gap of unknown length is added, since the present gap may be longer than all before.
    #[must_use]
    pub fn chance_within(&self, horizon: Millis, now: MonotonicTime) -> u32 {
        let Some(last) = self.last else { return 0 };
        let elapsed = now - last;
        let (from, until) = (bin_of(elapsed), bin_of(elapsed + horizon));
        let longer: u32 = self.counts[from..].iter().sum();
        let in_time: f64 = (from..=until)
            .map(|bin| {
                let (low, high) = (edge(bin).0.max(elapsed.0) as f64, edge(bin + 1).0 as f64);
                let part = ((elapsed + horizon).0 as f64).min(high) - low;
                let whole = (high - low).max(1.0);
                f64::from(self.counts[bin]) * (part / whole).clamp(0.0, 1.0)
            })
            .sum();
        // The gap of unknown length (Lindy's law): with probability 1/2 it ends within as much time as has passed.
        let lindy = horizon.0 as f64 / (horizon + elapsed).0.max(1) as f64;
        let chance = (in_time + OPEN * lindy) / (f64::from(longer) + OPEN);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let millionths = (chance.clamp(0.0, 1.0) * 1e6) as u32;
        millionths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(period: u64, uses: u64) -> Gaps {
        let mut gaps = Gaps::default();
        (0..uses).for_each(|use_| gaps.used(MonotonicTime(1_000_000 + use_ * period)));
        gaps
    }

    #[test]
    fn bins_ascend_and_contain_their_gaps() {
        for bin in 0..BINS {
            assert!(edge(bin) <= edge(bin + 1));
        }
        for gap in [0, 1, 2, 3, 10, 1_000, 60_000, 86_400_000, u64::MAX] {
            let bin = bin_of(Millis(gap));
            assert!(edge(bin).0 <= gap, "{gap} in {bin}");
            assert!(bin == BINS - 1 || gap < edge(bin + 1).0, "{gap} in {bin}");
        }
    }

    #[test]
    fn a_periodic_use_is_predicted_when_it_is_due() {
        let gaps = timer(60_000, 100);
        let last = gaps.last().unwrap();
        let chance = |after: u64| gaps.chance_within(Millis(10_000), last + Millis(after));
        assert!(chance(1_000) < 50_000, "{}", chance(1_000));
        assert!(chance(55_000) > 300_000, "{}", chance(55_000));
        assert!(chance(3_600_000) < 50_000, "it has stopped: {}", chance(3_600_000));
    }

    #[test]
    fn functions_that_fit_have_no_cold_starts_and_one_more_has() {
        let profile = |gaps: &Gaps| gaps.profile(gaps.last().unwrap() + Millis(1));
        let busy = profile(&timer(1_000, 200));
        let mut node = Pressure::new(2);
        node.add(&busy);
        assert!(node.cold() < 0.02, "{}", node.cold());
        let two = node.cold_with(Some(&busy));
        node.add(&busy);
        assert!((node.cold() - two).abs() < 1e-6);
        let three = node.cold_with(Some(&busy));
        assert!(three > 0.5 && three > 10.0 * two, "{two} {three}");
        node.remove(&busy);
        assert!((node.cold_with(Some(&busy)) - two).abs() < 1e-3);
    }

    #[test]
    fn old_gaps_fade() {
        let mut gaps = timer(1_000, 600);
        let last = gaps.last().unwrap();
        (1..400).for_each(|use_| gaps.used(last + Millis(use_ * 3_600_000)));
        let now = gaps.last().unwrap() + Millis(2_000);
        assert!(gaps.chance_within(Millis(10_000), now) < 200_000);
    }
}

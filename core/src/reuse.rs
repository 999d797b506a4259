//! When a bitstream will be used again, by the gaps between its uses so far (S-11): which one to evict, and how many
//! cold starts a node has to expect of the functions on it.
//!
//! Gaps are counted in bins, two per factor of two; nothing is assumed about their distribution, so that a timer, a
//! burst and a trickle are told apart. Old gaps fade. Nothing here knows slots or nodes.

use crate::units::Millis;

/// Bins, from a millisecond to seven weeks.
pub const BINS: usize = 64;
/// With so many gaps all are halved: what is old fades.
const FADE_AT: u32 = 512;
/// What the gap that is open now weighs against those that are over.
const OPEN: f64 = 1.0;

/// The gaps between the uses of one bitstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    counts: [u16; BINS],
    total: u32,
    last: Option<Millis>,
}

/// What one function does to the slots of a node, for each time that bitstreams stay there unused: entry `bin` is for as
/// long as [`edge`] of `bin`.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Share of the time that its bitstream is in a slot.
    pub resident: [f32; BINS],
    /// Cold starts per second.
    pub cold: [f32; BINS],
}

/// How far ahead evictions look: about as long as a bitstream stays unused before it goes. That follows from the load and
/// the number of slots, and is learnt from the evictions themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Horizon(Millis);

/// The functions of one node together.
#[derive(Debug, Clone, PartialEq)]
pub struct Pressure {
    sum: Profile,
    slots: f32,
}

/// The shortest gap of a bin.
#[must_use]
pub fn edge(bin: usize) -> Millis {
    let octave = 1_u64 << (bin / 2).min(62);
    // The odd ones lie at √2 between.
    let edge = if bin.is_multiple_of(2) { octave } else { octave * 92_682 / 65_536 };
    Millis(edge - 1)
}

fn bin_of(gap: Millis) -> usize {
    let from_one = gap.0.saturating_add(1);
    let octave = 63 - from_one.leading_zeros() as usize;
    let even = (octave * 2).min(BINS - 2);
    if gap >= edge(even + 1) { even + 1 } else { even }
}

/// A gap that stands for those of a bin.
fn middle(bin: usize) -> f64 {
    (edge(bin).0 + edge(bin + 1).0) as f64 / 2.0
}

impl Default for Gaps {
    fn default() -> Self {
        Self { counts: [0; BINS], total: 0, last: None }
    }
}

impl Gaps {
    /// It was used.
    pub fn used(&mut self, now: Millis) {
        if let Some(last) = self.last.replace(now) {
            self.counts[bin_of(now - last)] += 1;
            self.total += 1;
            if self.total >= FADE_AT {
                self.counts.iter_mut().for_each(|count| *count /= 2);
                self.total = self.counts.iter().map(|count| u32::from(*count)).sum();
            }
        }
    }

    /// When it was used last.
    #[must_use]
    pub fn last(&self) -> Option<Millis> {
        self.last
    }

    /// How likely it is used within `horizon` from now, in millionths.
    ///
    /// Of the gaps that lasted as long as the present one, the share that then ended in time; a little is kept for the
    /// case that this gap is longer than any before.
    #[must_use]
    pub fn chance_within(&self, horizon: Millis, now: Millis) -> u32 {
        let Some(last) = self.last else { return 0 };
        let elapsed = now - last;
        let (from, until) = (bin_of(elapsed), bin_of(elapsed + horizon));
        let longer: u32 = self.counts[from..].iter().map(|count| u32::from(*count)).sum();
        let in_time: f64 = (from..=until)
            .map(|bin| {
                let (low, high) = (edge(bin).0.max(elapsed.0) as f64, edge(bin + 1).0 as f64);
                let part = ((elapsed + horizon).0 as f64).min(high) - low;
                let whole = (high - low).max(1.0);
                f64::from(self.counts[bin]) * (part / whole).clamp(0.0, 1.0)
            })
            .sum();
        // Who was away long stays away long: half of the unknown gaps end in as much time as has passed.
        let lindy = horizon.0 as f64 / (horizon + elapsed).0.max(1) as f64;
        let chance = (in_time + OPEN * lindy) / (f64::from(longer) + OPEN);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        let millionths = (chance.clamp(0.0, 1.0) * 1e6) as u32;
        millionths
    }

    /// What it does to a node's slots, if its gaps go on as they were.
    #[must_use]
    pub fn profile(&self, now: Millis) -> Profile {
        let mut profile = Profile::default();
        let Some(last) = self.last else { return profile };
        let mut counts = self.counts.map(f64::from);
        counts[bin_of(now - last)] += OPEN;
        let all: f64 = counts.iter().sum();
        let time: f64 = counts.iter().zip(0..).map(|(count, bin)| count * middle(bin)).sum();
        // From short to long: gaps shorter than the edge count whole, longer ones up to it.
        let (mut shorter, mut shorter_time) = (0.0, 0.0);
        for (bin, count) in counts.iter().enumerate() {
            let longer = all - shorter;
            profile.resident[bin] = narrow((shorter_time + longer * edge(bin).0 as f64) / time);
            profile.cold[bin] = narrow(longer / time * 1e3);
            shorter += count;
            shorter_time += count * middle(bin);
        }
        profile
    }
}

impl Horizon {
    /// What it is now.
    #[must_use]
    pub fn get(self) -> Millis {
        self.0
    }

    /// Something was evicted that had been unused for so long.
    pub fn evicted(&mut self, unused: Millis) {
        // A moving mean over some thirty evictions; never nothing at all.
        self.0 = Millis((self.0.0.saturating_mul(31).saturating_add(unused.0)) / 32).max(Millis(1_000));
    }
}

impl Default for Horizon {
    fn default() -> Self {
        Self(Millis::from_secs(120))
    }
}

fn narrow(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more digits")]
    let value = value as f32;
    value
}

impl Default for Profile {
    fn default() -> Self {
        Self { resident: [0.0; BINS], cold: [0.0; BINS] }
    }
}

impl Pressure {
    /// Of a node without functions.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { sum: Profile::default(), slots: narrow(f64::from(slots)) }
    }

    /// With one function more.
    pub fn add(&mut self, function: &Profile) {
        for (sum, one) in self.sum.resident.iter_mut().zip(&function.resident) {
            *sum += one;
        }
        for (sum, one) in self.sum.cold.iter_mut().zip(&function.cold) {
            *sum += one;
        }
    }

    /// With one function less.
    pub fn remove(&mut self, function: &Profile) {
        for (sum, one) in self.sum.resident.iter_mut().zip(&function.resident) {
            *sum -= one;
        }
        for (sum, one) in self.sum.cold.iter_mut().zip(&function.cold) {
            *sum -= one;
        }
    }

    /// Cold starts per second: bitstreams stay unused just so long that the slots are full (Che's approximation, with
    /// measured gaps instead of random ones).
    #[must_use]
    pub fn cold(&self) -> f32 {
        self.cold_with(None)
    }

    /// The same if `function` came too.
    #[must_use]
    pub fn cold_with(&self, function: Option<&Profile>) -> f32 {
        let more = |bin: usize| function.map_or((0.0, 0.0), |one| (one.resident[bin], one.cold[bin]));
        let mut before = None;
        for bin in 0..BINS {
            let (resident, cold) = more(bin);
            let (resident, cold) = (self.sum.resident[bin] + resident, self.sum.cold[bin] + cold);
            if resident >= self.slots {
                let Some((resident_before, cold_before)) = before else { return cold };
                let share = (self.slots - resident_before) / (resident - resident_before);
                return cold_before + (cold - cold_before) * share;
            }
            before = Some((resident, cold));
        }
        // Everybody has a slot for good.
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(period: u64, uses: u64) -> Gaps {
        let mut gaps = Gaps::default();
        (0..uses).for_each(|use_| gaps.used(Millis(1_000_000 + use_ * period)));
        gaps
    }

    #[test]
    fn bins_rise_and_hold_what_they_say() {
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
    fn a_timer_is_expected_when_it_is_due() {
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

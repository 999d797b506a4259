//! The effect of a function on the slots of a node, by the gaps between its uses, and the cold starts that the
//! functions of one node cause together.

use super::{BINS, Gaps, OPEN, bin_of, edge, middle};
use fpga_core::units::MonotonicTime;

/// The effect of one function on a node's slots, as a function of the time for which unused bitstreams stay in a slot.
/// Entry `bin` is for the time [`edge`]`(bin)`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReuseProfile {
    /// Share of the time for which the function's bitstream is in a slot.
    pub resident: [f32; BINS],
    /// Cold starts per second.
    pub cold: [f32; BINS],
}

/// The sum of the profiles of a node's functions.
#[derive(Debug, Clone, PartialEq)]
pub struct Pressure {
    sum: ReuseProfile,
    slots: f32,
}

impl Gaps {
    /// The profile of a function with these gaps, provided that future gaps are like the past ones.
    #[must_use]
    pub fn profile(&self, now: MonotonicTime) -> ReuseProfile {
        let mut profile = ReuseProfile::default();
        let Some(last) = self.last else { return profile };
        let mut counts = self.counts.map(f64::from);
        counts[bin_of(now - last)] += OPEN;
        let all: f64 = counts.iter().sum();
        let time: f64 = counts.iter().zip(0..).map(|(count, bin)| count * middle(bin)).sum();
        // Gaps shorter than the edge count in full, longer ones up to the edge.
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

impl Default for ReuseProfile {
    fn default() -> Self {
        Self { resident: [0.0; BINS], cold: [0.0; BINS] }
    }
}

impl Pressure {
    /// A node with `slots` slots and without functions.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { sum: ReuseProfile::default(), slots: narrow(f64::from(slots)) }
    }

    /// Adds a function.
    pub fn add(&mut self, function: &ReuseProfile) {
        for (sum, one) in self.sum.resident.iter_mut().zip(&function.resident) {
            *sum += one;
        }
        for (sum, one) in self.sum.cold.iter_mut().zip(&function.cold) {
            *sum += one;
        }
    }

    /// Removes a function.
    pub fn remove(&mut self, function: &ReuseProfile) {
        for (sum, one) in self.sum.resident.iter_mut().zip(&function.resident) {
            *sum -= one;
        }
        for (sum, one) in self.sum.cold.iter_mut().zip(&function.cold) {
            *sum -= one;
        }
    }

    /// Cold starts per second by Che's approximation, with measured gaps instead of random ones: bitstreams stay
    /// unused for the time at which the slots are just full.
    #[must_use]
    pub fn cold(&self) -> f32 {
        self.cold_with(None)
    }

    /// Cold starts per second if `function` were added.
    #[must_use]
    pub fn cold_with(&self, function: Option<&ReuseProfile>) -> f32 {
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
        // There is a slot for every function.
        0.0
    }
}

fn narrow(value: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more digits")]
    let value = value as f32;
    value
}

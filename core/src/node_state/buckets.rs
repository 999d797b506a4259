//! The window in time slices: what lets a reader fade a node's usage without another word from it.

use crate::units::Millis;
use serde::{Deserialize, Serialize};

/// Usage and reconfiguration time in slices of equal length, newest first.
///
/// Slice `i` covers `(measured_at − (i + 1) × bucket, measured_at − i × bucket]`. Zeros at the old end may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Buckets {
    /// Length of a slice.
    #[serde(rename = "bucketMs")]
    pub bucket: Millis,
    /// Slot time used per slice.
    #[serde(rename = "usageMs", default)]
    pub usage: Vec<Millis>,
    /// Time spent reconfiguring per slice.
    #[serde(rename = "reconfigurationMs", default)]
    pub reconfiguration: Vec<Millis>,
}

impl Buckets {
    /// What of `slices` lies in the window that ends `age` after the measurement; a slice that sticks out at the old
    /// end counts by the share that is inside.
    #[must_use]
    pub fn sum_at(slices: &[Millis], bucket: Millis, window: Millis, age: Millis) -> Millis {
        if bucket == Millis::ZERO {
            return Millis::ZERO;
        }
        let covered = (window - age).0;
        let whole = usize::try_from(covered / bucket.0).unwrap_or(usize::MAX).min(slices.len());
        let sum = slices[..whole].iter().fold(Millis::ZERO, |sum, slice| sum + *slice);
        let Some(partly) = slices.get(whole) else { return sum };
        let share = u128::from(partly.0) * u128::from(covered % bucket.0) / u128::from(bucket.0);
        sum + Millis(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The number of slices it speaks of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.usage.len().max(self.reconfiguration.len())
    }

    /// Whether nothing happened in the window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Half the resolution: neighbours become one slice of twice the length.
    pub fn halve(&mut self) {
        self.bucket = self.bucket + self.bucket;
        for slices in [&mut self.usage, &mut self.reconfiguration] {
            *slices = slices
                .chunks(2)
                .map(|pair| pair.iter().fold(Millis::ZERO, |sum, part| sum + *part))
                .collect();
        }
    }

    /// Leaves out zeros at the old end.
    pub fn trim(&mut self) {
        for slices in [&mut self.usage, &mut self.reconfiguration] {
            let end = slices.iter().rposition(|slice| *slice != Millis::ZERO).map_or(0, |last| last + 1);
            slices.truncate(end);
        }
    }
}
